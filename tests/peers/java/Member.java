import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;

/** A member of a group that reads numbers and commits them, and says so, until its input ends. */
final class Member {
    private static final Duration POLL = Duration.ofMillis(100);

    private final KafkaConsumer<byte[], byte[]> consumer;

    Member(Properties settings) {
        consumer = new KafkaConsumer<>(settings);
    }

    void run(String topic) throws Exception {
        consumer.subscribe(List.of(topic), new Journal());
        while (System.in.available() == 0) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            if (records.isEmpty()) {
                continue;
            }
            for (ConsumerRecord<byte[], byte[]> record : records) {
                String number = new String(record.value(), StandardCharsets.UTF_8);
                System.out.println("{\"read\":[" + record.partition() + "," + number + "]}");
            }
            commit();
        }
        consumer.close();
    }

    private void commit() {
        while (true) {
            try {
                consumer.commitSync();
                return;
            } catch (RetriableException error) {
                refused(error);
            } catch (KafkaException error) {
                refused(error);
                return;
            }
        }
    }

    private static void refused(KafkaException error) {
        System.out.println("{\"refused\":\"" + error.toString().replaceAll("[\"\\\\\\n]", " ") + "\"}");
    }

    private static void say(String what, Collection<TopicPartition> partitions) {
        String numbers =
            partitions.stream().map(each -> Integer.toString(each.partition())).collect(Collectors.joining(","));
        System.out.println("{\"" + what + "\":[" + numbers + "]}");
    }

    /** Tells what the member has. */
    private static final class Journal implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            say("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            say("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            say("lost", partitions);
        }
    }
}
