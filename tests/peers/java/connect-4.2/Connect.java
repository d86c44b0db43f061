import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.TimeZone;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;

/** Kafka's converters and transforms on records that stand as JSON on standard input, one a line. */
public class Connect {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode given = JSON.readTree(line);
            ObjectNode answer;
            try {
                answer = answer(given);
            } catch (Exception error) {
                answer = JSON.createObjectNode().put("error", String.valueOf(error));
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    static ObjectNode answer(JsonNode given) throws Exception {
        return switch (given.get("verb").asText()) {
            case "transform" -> transform(given);
            case "header" -> header(given.get("text").asText());
            default -> convert(given);
        };
    }

    static Map<String, Object> map(JsonNode node) {
        Map<String, Object> found = new HashMap<>();
        node.fields().forEachRemaining(field -> found.put(field.getKey(), field.getValue().asText()));
        return found;
    }

    static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : text.asText().getBytes(StandardCharsets.UTF_8);
    }

    static void put(ObjectNode answer, String name, byte[] bytes) {
        answer.put(name, bytes == null ? null : new String(bytes, StandardCharsets.UTF_8));
    }

    static JsonConverter json(boolean schemas) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", schemas, "converter.type", "value"));
        return converter;
    }

    /** A record through a transform, in JSON on both sides; null where it was dropped. */
    static ObjectNode transform(JsonNode given) throws Exception {
        boolean schemas = given.get("schemas").asBoolean();
        JsonConverter converter = json(schemas);
        HeaderConverter ofHeaders = new SimpleHeaderConverter();
        SchemaAndValue key = converter.toConnectData("t", bytes(given.get("key")));
        SchemaAndValue value = converter.toConnectData("t", bytes(given.get("value")));
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode each : given.get("headers")) {
            headers.add(each.get(0).asText(), ofHeaders.toConnectHeader("t", "h", bytes(each.get(1))));
        }
        SinkRecord record = new SinkRecord(given.get("topic").asText(), 2, key.schema(), key.value(), value.schema(),
            value.value(), 7, given.get("timestamp").asLong(), TimestampType.CREATE_TIME, headers);
        ObjectNode answer = JSON.createObjectNode();
        try (Transformation<SinkRecord> transform = transform(given.get("class").asText())) {
            transform.configure(map(given.get("config")));
            SinkRecord made = transform.apply(record);
            if (made == null) {
                return answer.put("dropped", true);
            }
            answer.put("topic", made.topic());
            put(answer, "key", converter.fromConnectData("t", made.keySchema(), made.key()));
            put(answer, "value", converter.fromConnectData("t", made.valueSchema(), made.value()));
            ArrayNode listed = answer.putArray("headers");
            for (Header header : made.headers()) {
                byte[] text = ofHeaders.fromConnectHeader("t", header.key(), header.schema(), header.value());
                listed.addArray().add(header.key()).add(text == null ? null : new String(text, StandardCharsets.UTF_8));
            }
        }
        return answer;
    }

    @SuppressWarnings("unchecked")
    static Transformation<SinkRecord> transform(String name) throws Exception {
        return (Transformation<SinkRecord>) Class.forName(name).getDeclaredConstructor().newInstance();
    }

    /** The type that is guessed of a header's text, and the text that is written of it. */
    static ObjectNode header(String text) {
        HeaderConverter converter = new SimpleHeaderConverter();
        SchemaAndValue found = converter.toConnectHeader("t", "h", text.getBytes(StandardCharsets.UTF_8));
        ObjectNode answer = JSON.createObjectNode();
        answer.put("type", found.schema() == null ? null : found.schema().type().getName());
        answer.put("name", found.schema() == null ? null : found.schema().name());
        put(answer, "text", converter.fromConnectHeader("t", "h", found.schema(), found.value()));
        return answer;
    }

    /** What is read of JSON by its own settings, and written by another converter. */
    static ObjectNode convert(JsonNode given) throws Exception {
        JsonConverter from = new JsonConverter();
        Map<String, Object> settings = map(given.get("config"));
        settings.put("converter.type", "value");
        from.configure(settings);
        SchemaAndValue read = from.toConnectData("t", bytes(given.get("value")));
        Converter to = (Converter) Class.forName(given.get("class").asText()).getDeclaredConstructor().newInstance();
        to.configure(settings, false);
        byte[] made = to.fromConnectData("t", read.schema(), read.value());
        ObjectNode answer = JSON.createObjectNode();
        answer.put("bytes", made == null ? null : java.util.HexFormat.of().formatHex(made));
        return answer;
    }
}
