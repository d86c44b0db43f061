import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.AccessibleObject;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.OptionalLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * MirrorMaker's own classes on the histories that stand as JSON on standard input, one a line.
 *
 * <p>A history is a list of events: ["start", keepsHistory], ["end"] (the topic was read to its end), ["sync", upstream,
 * downstream], ["ask", upstream], ["copied", lag, [upstream, downstream]...]. The answer is a list with what each "ask" is
 * translated to, null for nothing, and for "copied" the indexes of the records that need a sync at once.
 */
public class Translate {
    static final ObjectMapper JSON = new ObjectMapper();
    static final String PACKAGE = "org.apache.kafka.connect.mirror.";
    static final TopicPartition PAGES = new TopicPartition("pages", 0);

    static <T extends AccessibleObject> T opened(T member) {
        member.setAccessible(true);
        return member;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(JSON.writeValueAsString(answers(JSON.readTree(line))));
        }
    }

    static ArrayNode answers(JsonNode history) throws Exception {
        Class<?> type = Class.forName(PACKAGE + "OffsetSyncStore");
        Method handle = opened(type.getDeclaredMethod("handleRecord", ConsumerRecord.class));
        Method translate = opened(type.getDeclaredMethod("translateDownstream", String.class, TopicPartition.class, long.class));
        Field mustReadToEnd = opened(type.getDeclaredField("initializationMustReadToEnd"));
        Field isRead = opened(type.getDeclaredField("readToEnd"));
        Object store = null;
        ArrayNode found = JSON.createArrayNode();
        for (JsonNode event : history) {
            switch (event.get(0).asText()) {
                case "start" -> {
                    store = opened(type.getDeclaredConstructor()).newInstance();
                    mustReadToEnd.setBoolean(store, !event.get(1).asBoolean());
                }
                case "end" -> isRead.setBoolean(store, true);
                case "sync" -> handle.invoke(store, record(event.get(1).asLong(), event.get(2).asLong()));
                case "copied" -> found.add(due(event));
                default -> {
                    OptionalLong answer = (OptionalLong) translate.invoke(store, "g", PAGES, event.get(1).asLong());
                    if (answer.isPresent()) {
                        found.add(answer.getAsLong());
                    } else {
                        found.addNull();
                    }
                }
            }
        }
        return found;
    }

    /** A sync as its topic has it. */
    static ConsumerRecord<byte[], byte[]> record(long upstream, long downstream) {
        byte[] topic = PAGES.topic().getBytes(StandardCharsets.UTF_8);
        ByteBuffer key = ByteBuffer.allocate(2 + topic.length + 4);
        key.putShort((short) topic.length).put(topic).putInt(PAGES.partition());
        ByteBuffer value = ByteBuffer.allocate(16).putLong(upstream).putLong(downstream);
        return new ConsumerRecord<>("mm2-offset-syncs.b.internal", 0, 0, key.array(), value.array());
    }

    /** The records that a task would sync at once. */
    static ArrayNode due(JsonNode event) throws Exception {
        Class<?> type = Arrays.stream(Class.forName(PACKAGE + "OffsetSyncWriter").getDeclaredClasses())
            .filter(each -> each.getSimpleName().equals("PartitionState")).findFirst().orElseThrow();
        Constructor<?> make = opened(type.getDeclaredConstructor(long.class));
        Method update = opened(type.getDeclaredMethod("update", long.class, long.class));
        Method reset = opened(type.getDeclaredMethod("reset"));
        Object state = make.newInstance(event.get(1).asLong());
        ArrayNode found = JSON.createArrayNode();
        for (int index = 2; index < event.size(); index++) {
            JsonNode pair = event.get(index);
            if ((boolean) update.invoke(state, pair.get(0).asLong(), pair.get(1).asLong())) {
                found.add(index - 2);
                reset.invoke(state);
            }
        }
        return found;
    }
}
