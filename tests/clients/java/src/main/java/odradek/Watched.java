package odradek;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A service whose test reads the console's JSON: WATCHED BOOTSTRAP CONSOLE-URL. Three orders are billed and paid.
 *
 * Prints a line for each thing that the console shows in time, and fails at the first one that it does not show.
 */
public final class Watched {
    private static final int ORDERS = 3;
    private static final int WAIT_MS = 20_000;

    private final HttpClient http = HttpClient.newHttpClient();
    private final ObjectMapper json = new ObjectMapper();
    private final String bootstrap;
    private final String url;

    private Watched(String bootstrap, String url) {
        this.bootstrap = bootstrap;
        this.url = url;
    }

    JsonNode read(String path) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + path)).build();
        HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new AssertionError(answer.statusCode() + " " + answer.body());
        }
        return json.readTree(answer.body());
    }

    /** Returns the first row that is wanted, as soon as there is one. */
    JsonNode until(String path, Predicate<JsonNode> isWanted) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        JsonNode shown;
        do {
            shown = read(path);
            for (JsonNode rows : shown.findValues("rows")) {
                for (JsonNode row : rows) {
                    if (isWanted.test(row)) {
                        return row;
                    }
                }
            }
            Thread.sleep(20);
        } while (System.nanoTime() < deadline);
        throw new AssertionError(path + " shows " + shown);
    }

    private void run() throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (int order = 0; order < ORDERS; order++) {
                producer.send(new ProducerRecord<>("orders", "order " + order)).get();
            }
        }
        Thread billing = new Thread(this::bill);
        billing.setDaemon(true);
        billing.start();
        theConsumerHasReadAllAndWaits();
        theGroupHasNoLag();
        theTransactionIsOpenUntilItIsCommitted();
    }

    private void theConsumerHasReadAllAndWaits() throws Exception {
        JsonNode fetch = until("/api/waiting", row -> row.at("/clients/0/client_id").asText().equals("billing-1")
                && row.get("why").asText().endsWith("orders-0 from 3, which ends at 3"));
        long left = fetch.get("left_ms").asLong();
        System.out.println("the fetch of orders waits, and not too long: " + (left >= 0 && left <= WAIT_MS));
    }

    private void theGroupHasNoLag() throws Exception {
        JsonNode group = until("/api/groups?search=billing", row -> row.get("state").asText().equals("Stable")
                && row.get("committed_partitions").asInt() == 1 && row.get("lag").asInt() == 0);
        JsonNode members = read("/api/members?name=billing").get("rows");
        System.out.println("members " + group.get("members") + ", " + members.get(0).get("client_id").asText());
    }

    private void theTransactionIsOpenUntilItIsCommitted() throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", "payments"))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("invoices", "an invoice")).get();
            JsonNode open = until("/api/transactions?search=payments", row -> row.get("open_ms").isNumber());
            System.out.println(open.get("state").asText() + " " + open.get("partitions"));
            producer.commitTransaction();
            JsonNode done = until("/api/transactions?search=payments", row -> row.get("open_ms").isNull());
            System.out.println(done.get("state").asText() + " " + done.get("partitions"));
        }
    }

    private KafkaProducer<String, String> producer(Map<String, Object> own) {
        Map<String, Object> properties = new HashMap<>(own);
        properties.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    private void bill() {
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                Map.of("bootstrap.servers", bootstrap, "group.id", "billing", "client.id", "billing-1",
                        "auto.offset.reset", "earliest", "enable.auto.commit", false, "fetch.max.wait.ms", WAIT_MS,
                        "request.timeout.ms", 2 * WAIT_MS),
                new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            while (true) {
                consumer.poll(Duration.ofSeconds(1));
                consumer.commitSync();
            }
        }
    }

    public static void main(String[] args) throws Exception {
        new Watched(args[0], args[1]).run();
    }
}
