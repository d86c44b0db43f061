import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java clients as a peer: what the first argument names, with JSON lines as the answer. */
public final class Peer {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final int TRANSACTION = 100;

    private final String servers;

    private Peer(String servers) {
        this.servers = servers;
    }

    public static void main(String[] args) throws Exception {
        Peer peer = new Peer(args[1]);
        switch (args[0]) {
            case "produce" -> peer.produce(args[2], args[3], args[4], Integer.parseInt(args[5]));
            case "consume" -> peer.consume(
                args[2], args[3], Integer.parseInt(args[4]), args[5], () -> System.out.println("assigned"));
            case "read" -> peer.read(args[2]);
            case "admin" -> peer.admin(args[2]);
            case "copy" -> peer.copy(args[2], args[3], args[4], Integer.parseInt(args[5]), args[6]);
            case "member" -> new Member(peer.settings(peer.membership(args[3], args[4], 30_000))).run(args[2]);
            case "transact" -> peer.transact(args[2], args[3], args[4], Integer.parseInt(args[5]));
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private Properties settings(Map<String, Object> more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("key.serializer", ByteArraySerializer.class);
        settings.put("value.serializer", ByteArraySerializer.class);
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        settings.putAll(more);
        settings.putAll(login());
        return settings;
    }

    /** How to log in, from the environment; nothing where it does not say so. */
    private static Map<String, Object> login() {
        Map<String, String> given = System.getenv();
        if (!given.containsKey("PEER_PROTOCOL")) {
            return Map.of();
        }
        String mechanism = given.get("PEER_MECHANISM");
        String module = switch (mechanism) {
            case "PLAIN" -> "plain.PlainLoginModule";
            case "OAUTHBEARER" -> "oauthbearer.OAuthBearerLoginModule";
            default -> "scram.ScramLoginModule";
        };
        String options = mechanism.equals("OAUTHBEARER")
            ? "unsecuredLoginStringClaim_sub=\"" + given.get("PEER_USER") + "\""
            : "username=\"" + given.get("PEER_USER") + "\" password=\"" + given.get("PEER_PASSWORD") + "\"";
        Map<String, Object> settings = new HashMap<>();
        settings.put("security.protocol", given.get("PEER_PROTOCOL"));
        settings.put("sasl.mechanism", mechanism);
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security." + module + " required " + options + ";");
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", given.get("PEER_CA"));
        return settings;
    }

    /** Of the classic protocol, a member that gives up only what it must. */
    private Map<String, Object> membership(String group, String protocol, int sessionMs) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("metadata.max.age.ms", 2000);
        if (protocol.equals("classic")) {
            settings.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
            settings.put("session.timeout.ms", sessionMs);
            settings.put("heartbeat.interval.ms", 500);
        }
        return settings;
    }

    private void copy(String source, String target, String name, int size, String protocol) {
        Map<String, Object> reading = membership(source + " copiers", protocol, 6_000);
        reading.put("isolation.level", "read_committed");
        reading.put("max.poll.records", size);
        Map<String, Object> writing = Map.of("transactional.id", name, "linger.ms", 5);
        new Copier(settings(reading), settings(writing), source, target).run();
    }

    private KafkaConsumer<byte[], byte[]> member(String group, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(settings(settings));
    }

    private void produce(String topic, String codec, String tag, int count) throws Exception {
        Map<String, Object> settings = Map.of(
            "compression.type", codec, "enable.idempotence", true, "acks", "all", "linger.ms", 2);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings(settings))) {
            for (int n = 0; n < count; n++) {
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                    topic, bytes("key-" + n % 17), bytes(String.format("%s %06d ", tag, n) + "x".repeat(n % 50)));
                record.headers().add("number", bytes(Integer.toString(n))).add("empty", new byte[0]);
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> future : sent) {
                future.get();
            }
        }
    }

    private interface Step {
        void run() throws Exception;
    }

    private void consume(String topic, String group, int count, String protocol, Step assigned) throws Exception {
        Map<String, Object> settings = Map.of("group.protocol", protocol);
        List<KafkaConsumer<byte[], byte[]>> members = List.of(member(group, settings), member(group, settings));
        members.forEach(member -> member.subscribe(List.of(topic)));
        boolean announced = false;
        for (int got = 0; got < count; ) {
            for (KafkaConsumer<byte[], byte[]> member : members) {
                for (ConsumerRecord<byte[], byte[]> record : member.poll(POLL)) {
                    print(record);
                    got++;
                }
            }
            if (!announced && members.stream().noneMatch(member -> member.assignment().isEmpty())) {
                announced = true;
                assigned.run();
            }
        }
        members.forEach(KafkaConsumer::commitSync);
        members.forEach(KafkaConsumer::close);
    }

    /** Every record of a topic, up to the ends that its partitions have at first. */
    private void read(String topic) {
        try (KafkaConsumer<byte[], byte[]> reader = new KafkaConsumer<>(settings(Map.of()))) {
            List<TopicPartition> partitions = new ArrayList<>();
            reader.partitionsFor(topic).forEach(each -> partitions.add(new TopicPartition(topic, each.partition())));
            reader.assign(partitions);
            reader.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = reader.endOffsets(partitions);
            while (partitions.stream().anyMatch(each -> reader.position(each) < ends.get(each))) {
                reader.poll(POLL).forEach(Peer::print);
            }
        }
    }

    private void admin(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = Admin.create(settings(Map.of()))) {
            NewTopic wanted = new NewTopic(topic, Optional.of(2), Optional.empty());
            admin.createTopics(List.of(wanted.configs(Map.of("retention.ms", "3600000")))).all().get();
            try {
                admin.createTopics(List.of(wanted)).all().get();
                throw new AssertionError("a topic was created twice");
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof TopicExistsException)) {
                    throw error;
                }
            }
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            AlterConfigOp set = new AlterConfigOp(
                new ConfigEntry("max.message.bytes", "2000000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
            // Not before: what is not committed would be read again by another.
            consume(topic, topic, 100, "classic", () -> produce(topic, "none", "admin", 100));
            TopicPartition first = new TopicPartition(topic, 0);
            TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            var configs = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            var committed = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
            boolean listed = admin.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(topic));
            String state = admin.describeConsumerGroups(List.of(topic)).all().get().get(topic).state().toString();
            admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(1))).all().get();
            long start = admin.listOffsets(Map.of(first, OffsetSpec.earliest())).all().get().get(first).offset();
            admin.deleteConsumerGroups(List.of(topic)).all().get();
            admin.deleteTopics(List.of(topic)).all().get();
            boolean gone = !admin.listTopics().names().get().contains(topic);
            int nodes = admin.describeCluster().nodes().get().size();
            Map<String, Object> answer = new TreeMap<>();
            answer.put("partitions", described.partitions().size());
            answer.put("retention.ms", quoted(configs.get("retention.ms").value()));
            answer.put("max.message.bytes", quoted(configs.get("max.message.bytes").value()));
            answer.put("committed", committed.values().stream().mapToLong(OffsetAndMetadata::offset).sum());
            answer.put("listed", listed);
            answer.put("state", quoted(state));
            answer.put("start", start);
            answer.put("gone", gone);
            answer.put("nodes", nodes);
            List<String> fields = new ArrayList<>();
            answer.forEach((name, value) -> fields.add(quoted(name) + ":" + value));
            System.out.println("{" + String.join(",", fields) + "}");
        }
    }

    /** Copies in transactions with the offsets inside; every third one is aborted first, then done anew. */
    private void transact(String source, String target, String group, int count) {
        Map<String, Object> reading = Map.of("isolation.level", "read_committed", "max.poll.records", TRANSACTION);
        Map<String, Object> writing = Map.of("transactional.id", group, "linger.ms", 2);
        try (KafkaConsumer<byte[], byte[]> reader = member(group, reading);
             KafkaProducer<byte[], byte[]> writer = new KafkaProducer<>(settings(writing))) {
            writer.initTransactions();
            reader.subscribe(List.of(source));
            int transactions = 0;
            for (int done = 0; done < count; ) {
                ConsumerRecords<byte[], byte[]> records = reader.poll(POLL);
                if (records.isEmpty()) {
                    continue;
                }
                if (++transactions % 3 == 0) {
                    copy(records, target, reader, writer);
                    writer.flush();
                    writer.abortTransaction();
                }
                copy(records, target, reader, writer);
                writer.commitTransaction();
                done += records.count();
            }
        }
    }

    private void copy(
            ConsumerRecords<byte[], byte[]> records,
            String target,
            KafkaConsumer<byte[], byte[]> reader,
            KafkaProducer<byte[], byte[]> writer) {
        writer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            writer.send(new ProducerRecord<>(target, null, record.key(), record.value(), record.headers()));
            offsets.put(
                new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        writer.sendOffsetsToTransaction(offsets, reader.groupMetadata());
    }

    private static void print(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add("[" + quoted(header.key()) + "," + quoted(text(header.value())) + "]");
        }
        System.out.println("{\"key\":" + quoted(text(record.key())) + ",\"value\":" + quoted(text(record.value()))
            + ",\"headers\":[" + String.join(",", headers) + "]}");
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static String quoted(String text) {
        return '"' + text + '"';
    }
}
