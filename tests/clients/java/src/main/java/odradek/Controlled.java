package odradek;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A service that is tested with faults: CONTROLLED BOOTSTRAP CONTROL-URL TOKEN. Its first record is refused once.
 */
public final class Controlled {
    private final HttpClient http = HttpClient.newHttpClient();
    private final String url;
    private final String token;

    private Controlled(String url, String token) {
        this.url = url;
        this.token = token;
    }

    String ask(String method, String path, String document) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + path))
                .header("Authorization", "Bearer " + token)
                .method(method, HttpRequest.BodyPublishers.ofString(document))
                .build();
        HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() >= 300) {
            throw new AssertionError(answer.statusCode() + " " + answer.body());
        }
        return answer.body();
    }

    public static void main(String[] args) throws Exception {
        Controlled broker = new Controlled(args[1], args[2]);
        broker.ask("POST", "/faults",
                "{\"api\": \"Produce\", \"topic\": \"orders\", \"nth\": 1, \"error\": \"NOT_LEADER_OR_FOLLOWER\"}");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", args[0]), new StringSerializer(), new StringSerializer())) {
            long offset = producer.send(new ProducerRecord<>("orders", "an order")).get().offset();
            System.out.println("offset " + offset);
        }
        String failed = broker.ask("POST", "/requests/wait", "{\"api\": \"Produce\", \"answered\": true}");
        String repeated = broker.ask("POST", "/requests/wait", "{\"api\": \"Produce\", \"answered\": true}");
        System.out.println("failed " + failed.contains("\"ErrorCode\": 6"));
        System.out.println("repeated " + repeated.contains("\"ErrorCode\": 0"));
        broker.ask("GET", "/check", "");
    }
}
