import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * A member of a group that copies a topic into another in transactions, until it is killed.
 *
 * It has the words of tests/system/cluster/group_copier.py; a transaction in ten it aborts, and does again.
 */
final class Copier {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final byte[] TORN = "aborted ".getBytes(StandardCharsets.UTF_8);

    private final String source;
    private final String target;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final KafkaProducer<byte[], byte[]> producer;
    private final Random random = new Random();

    Copier(Properties reading, Properties writing, String source, String target) {
        this.source = source;
        this.target = target;
        consumer = new KafkaConsumer<>(reading);
        producer = new KafkaProducer<>(writing);
    }

    void run() {
        retried(producer::initTransactions);
        consumer.subscribe(List.of(source), new Journal());
        while (true) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            if (records.isEmpty()) {
                continue;
            }
            boolean aborts = random.nextInt(10) == 0;
            try {
                copy(records, aborts);
                say(aborts ? "aborted" : "copied", records.count());
            } catch (ProducerFencedException error) {
                throw error;
            } catch (KafkaException error) {
                refused(error);
                retried(producer::abortTransaction);
                aborts = true;
            }
            if (aborts) {
                retried(this::goBack);
            }
        }
    }

    private void copy(ConsumerRecords<byte[], byte[]> records, boolean aborts) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> after = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            byte[] value = aborts ? TORN : record.value();
            producer.send(new ProducerRecord<>(target, record.partition(), record.key(), value));
            after.put(
                new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(after, consumer.groupMetadata());
        if (aborts) {
            producer.flush();
            producer.abortTransaction();
        } else {
            retried(producer::commitTransaction);
        }
    }

    /** To where the last transaction that was committed has ended. */
    private void goBack() {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        committed.forEach((partition, place) -> consumer.seek(partition, place == null ? 0 : place.offset()));
    }

    /** Calls again what has only taken too long. */
    private static void retried(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                refused(error);
            }
        }
    }

    private static void refused(KafkaException error) {
        String text = (error + (error.getCause() == null ? "" : " of " + error.getCause()));
        System.out.println("{\"refused\":\"" + text.replaceAll("[\"\\\\\\n]", " ") + "\"}");
    }

    private static void say(String what, int count) {
        System.out.println("{\"" + what + "\":" + count + "}");
    }

    /** Tells what the member has. */
    private static final class Journal implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            say("assigned", partitions.size());
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            say("revoked", partitions.size());
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            say("lost", partitions.size());
        }
    }
}
