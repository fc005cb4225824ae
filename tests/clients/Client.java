// Java's HttpClient against the origin: plain, intercepted in both versions, a body up and down; proxy and trust come from
// the options of the virtual machine.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;

public class Client {
    static void need(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    public static void main(String[] args) throws Exception {
        String plain = System.getenv("PLAIN");
        String secure = System.getenv("SECURE");
        String body = "0123456789".repeat(10_000);
        for (HttpClient.Version version : HttpClient.Version.values()) {
            HttpClient client = HttpClient.newBuilder().version(version).connectTimeout(Duration.ofSeconds(20)).build();
            var bytes = client.send(HttpRequest.newBuilder(URI.create(plain + "/bytes/100")).build(), BodyHandlers.ofByteArray());
            need(bytes.body().length == 100, "plain");
            var post = HttpRequest.newBuilder(URI.create(secure + "/echo")).POST(HttpRequest.BodyPublishers.ofString(body));
            var echo = client.send(post.build(), BodyHandlers.ofString());
            need(echo.statusCode() == 200 && echo.body().equals(body), "echo over " + version);
            need(echo.version() == version, "asked for " + version + ", got " + echo.version());
        }
        System.out.println("fine");
    }
}
