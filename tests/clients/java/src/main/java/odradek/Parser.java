package odradek;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;

/**
 * Parses responses as Kafka's clients do: lines "KEY VERSION CORRELATION-ID HEX", of frames without their length.
 *
 * Prints "KEY VERSION" and the error codes that Kafka counts in the response, as NAME=COUNT, or "! REASON".
 */
public final class Parser {
    private Parser() {
    }

    public static void main(String[] args) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            System.out.println(words[0] + " " + words[1] + " " + parsed(words));
        }
    }

    private static String parsed(String[] words) {
        try {
            ApiKeys key = ApiKeys.forId(Integer.parseInt(words[0]));
            short version = Short.parseShort(words[1]);
            RequestHeader header = new RequestHeader(key, version, "raw", Integer.parseInt(words[2]));
            AbstractResponse response = AbstractResponse.parseResponse(ByteBuffer.wrap(bytes(words[3])), header);
            Map<String, Integer> counts = new TreeMap<>();
            for (Map.Entry<Errors, Integer> entry : response.errorCounts().entrySet()) {
                counts.put(entry.getKey().name(), entry.getValue());
            }
            return counts.toString().replaceAll("[{}]", "").replace(", ", " ");
        } catch (RuntimeException thrown) {
            return "! " + thrown;
        }
    }

    private static byte[] bytes(String hex) {
        byte[] data = new byte[hex.length() / 2];
        for (int at = 0; at < data.length; at++) {
            data[at] = (byte) Integer.parseInt(hex.substring(2 * at, 2 * at + 2), 16);
        }
        return data;
    }
}
