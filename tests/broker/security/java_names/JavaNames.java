import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Reads lines of hexadecimal fields: a name in DER, or rules and a distinguished name. Writes what Java and Kafka make of each: hexadecimal UTF-8, or - for an error. */
public class JavaNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
        }
        out.flush();
    }

    private static String answer(String[] fields) {
        HexFormat hex = HexFormat.of();
        try {
            String name;
            if (fields.length == 1) {
                name = new X500Principal(hex.parseHex(fields[0])).getName();
            } else {
                String rules = new String(hex.parseHex(fields[0]), StandardCharsets.UTF_8);
                String distinguishedName = new String(hex.parseHex(fields[1]), StandardCharsets.UTF_8);
                name = SslPrincipalMapper.fromRules(rules).getName(distinguishedName);
            }
            return hex.formatHex(name.getBytes(StandardCharsets.UTF_8));
        } catch (Exception error) {
            return "-";
        }
    }
}
