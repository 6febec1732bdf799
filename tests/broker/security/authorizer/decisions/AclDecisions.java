import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Reads lines of four fields, separated by tabs: super.users, allow.everyone.if.no.acl.found, ACLs, requests. The items of the last two are separated by U+001E, and their
 * parts by U+001F. Writes a line of a digit for each request: 1 if Kafka's StandardAuthorizer allows it, else 0. A request without a name asks for some resource of the type.
 */
public class AclDecisions {
    private static final Map<String, StandardAuthorizer> AUTHORIZERS = new HashMap<>();
    private static final Map<String, InetAddress> HOSTS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        for (String name : List.of("kafka.authorizer.logger", "org.apache.kafka")) {
            org.apache.log4j.LogManager.getLogger(name).setLevel(org.apache.log4j.Level.OFF);
        }
        org.apache.log4j.LogManager.getRootLogger().setLevel(org.apache.log4j.Level.OFF);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(decisions(line.split("\t", -1)));
        }
        out.flush();
    }

    private static String decisions(String[] fields) {
        StandardAuthorizer authorizer = AUTHORIZERS.computeIfAbsent(fields[0] + "\t" + fields[1], key -> made(fields[0], fields[1]));
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        for (String item : fields[2].isEmpty() ? new String[0] : fields[2].split("\u001e")) {
            acls.put(new Uuid(1, acls.size() + 1), acl(item.split("\u001f", -1)));
        }
        authorizer.loadSnapshot(acls);
        StringBuilder digits = new StringBuilder();
        for (String item : fields[3].split("\u001e")) {
            digits.append(allows(authorizer, item.split("\u001f", -1)) ? '1' : '0');
        }
        return digits.toString();
    }

    private static StandardAuthorizer made(String superUsers, String allowEveryone) {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of("super.users", superUsers, "allow.everyone.if.no.acl.found", allowEveryone));
        authorizer.completeInitialLoad();
        return authorizer;
    }

    private static StandardAcl acl(String[] parts) {
        return new StandardAcl(
            ResourceType.fromCode(code(parts[0])), parts[2], PatternType.fromCode(code(parts[1])), parts[3], parts[4], AclOperation.fromCode(code(parts[5])),
            AclPermissionType.fromCode(code(parts[6])));
    }

    private static boolean allows(StandardAuthorizer authorizer, String[] parts) {
        AuthorizableRequestContext context = context(SecurityUtils.parseKafkaPrincipal(parts[0]), host(parts[1]));
        AclOperation operation = AclOperation.fromCode(code(parts[2]));
        ResourceType type = ResourceType.fromCode(code(parts[3]));
        if (parts.length == 4) {
            return authorizer.authorizeByResourceType(context, operation, type) == AuthorizationResult.ALLOWED;
        }
        Action action = new Action(operation, new ResourcePattern(type, parts[4], PatternType.LITERAL), 1, true, true);
        return authorizer.authorize(context, List.of(action)).get(0) == AuthorizationResult.ALLOWED;
    }

    private static byte code(String text) {
        return Byte.parseByte(text);
    }

    private static InetAddress host(String text) {
        return HOSTS.computeIfAbsent(text, address -> {
            try {
                return InetAddress.getByName(address);
            } catch (UnknownHostException error) {
                throw new IllegalArgumentException(error);
            }
        });
    }

    private static AuthorizableRequestContext context(KafkaPrincipal principal, InetAddress address) {
        return new AuthorizableRequestContext() {
            @Override
            public String listenerName() {
                return "PLAINTEXT";
            }

            @Override
            public SecurityProtocol securityProtocol() {
                return SecurityProtocol.PLAINTEXT;
            }

            @Override
            public KafkaPrincipal principal() {
                return principal;
            }

            @Override
            public InetAddress clientAddress() {
                return address;
            }

            @Override
            public int requestType() {
                return 0;
            }

            @Override
            public int requestVersion() {
                return 0;
            }

            @Override
            public String clientId() {
                return "";
            }

            @Override
            public int correlationId() {
                return 0;
            }
        };
    }
}
