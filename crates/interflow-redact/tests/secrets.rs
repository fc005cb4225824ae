//! Secrets of many providers where people leave them, and values that only look like secrets.

use interflow_redact::{RedactionSession, Redactor};

/// Random letters from a small generator, so that no secret scanner reports this file.
struct Draw(u64);

impl Draw {
    fn text(&mut self, alphabet: &[u8], length: usize) -> String {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize
        };
        (0..length).map(|_| char::from(alphabet[next() % alphabet.len()])).collect()
    }
}

const ANY: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const UPPER: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const HEX: &[u8] = b"0123456789abcdef";

fn secrets(text: &str) -> Vec<String> {
    let spans = Redactor::default().find(text, &RedactionSession::one_way());
    spans.iter().filter(|f| f.kind.is_secret()).map(|f| text[f.start..f.end].to_owned()).collect()
}

/// A provider's prefix and what follows it.
const FORMS: &[(&str, &[u8], usize)] = &[
    ("AKIA", UPPER, 16),
    ("ASIA", UPPER, 16),
    ("AIza", ANY, 35),
    ("GOCSPX-", ANY, 28),
    ("ya29.", ANY, 60),
    ("LTAI", ANY, 20),
    ("AKID", ANY, 36),
    ("dop_v1_", HEX, 64),
    ("doo_v1_", HEX, 64),
    ("dor_v1_", HEX, 64),
    ("sk-ant-api03-", ANY, 93),
    ("sk-proj-", ANY, 48),
    ("sk-svcacct-", ANY, 60),
    ("sk-or-v1-", HEX, 64),
    ("sk-", ANY, 48),
    ("xai-", ANY, 80),
    ("gsk_", ANY, 52),
    ("pplx-", ANY, 48),
    ("r8_", ANY, 37),
    ("hf_", ANY, 34),
    ("ifk_", ANY, 43),
    ("tvly-", ANY, 32),
    ("nvapi-", ANY, 64),
    ("tgp_v1_", ANY, 43),
    ("csk-", ANY, 48),
    ("pcsk_", ANY, 60),
    ("lsv2_pt_", HEX, 32),
    ("fw_", ANY, 24),
    ("ghp_", ANY, 36),
    ("gho_", ANY, 36),
    ("ghu_", ANY, 36),
    ("ghs_", ANY, 36),
    ("ghr_", ANY, 76),
    ("glpat-", ANY, 20),
    ("gldt-", ANY, 20),
    ("glrt-", ANY, 20),
    ("glptt-", HEX, 40),
    ("glagent-", ANY, 50),
    ("GR1348941", ANY, 20),
    ("xoxp-", ANY, 70),
    ("xoxb-", ANY, 52),
    ("xapp-", ANY, 60),
    ("sk_live_", ANY, 24),
    ("rk_live_", ANY, 24),
    ("sk_test_", ANY, 24),
    ("whsec_", ANY, 32),
    ("rzp_live_", ANY, 14),
    ("sq0atp-", ANY, 22),
    ("sq0csp-", ANY, 43),
    ("shpat_", HEX, 32),
    ("shpss_", HEX, 32),
    ("shippo_live_", HEX, 40),
    ("duffel_live_", ANY, 43),
    ("FLWSECK-", HEX, 32),
    ("EZAK", ANY, 54),
    ("SK", HEX, 32),
    ("AC", HEX, 32),
    ("SG.", ANY, 66),
    ("key-", HEX, 32),
    ("xkeysib-", HEX, 64),
    ("re_", ANY, 32),
    ("npm_", ANY, 36),
    ("pypi-", ANY, 100),
    ("rubygems_", HEX, 48),
    ("CLOJARS_", HEX, 60),
    ("dckr_pat_", ANY, 27),
    ("oy2", b"abcdefghijklmnop234567", 43),
    ("NRAK-", UPPER, 27),
    ("sntrys_", ANY, 80),
    ("glsa_", ANY, 41),
    ("glc_", ANY, 60),
    ("dt0c01.", UPPER, 89),
    ("phc_", ANY, 43),
    ("phx_", ANY, 43),
    ("lin_api_", ANY, 40),
    ("ntn_", ANY, 46),
    ("secret_", ANY, 43),
    ("PMAK-", HEX, 59),
    ("figd_", ANY, 40),
    ("tfp_", ANY, 44),
    ("CFPAT-", ANY, 43),
    ("fio-u-", ANY, 64),
    ("rdme_", ANY, 70),
    ("ATATT3", ANY, 186),
    ("ATBB", ANY, 32),
    ("hvs.", ANY, 90),
    ("hvb.", ANY, 138),
    ("pul-", HEX, 40),
    ("dapi", HEX, 32),
    ("dp.pt.", ANY, 43),
    ("nfp_", ANY, 40),
    ("fo1_", ANY, 43),
    ("fm2_", ANY, 120),
    ("rnd_", ANY, 32),
    ("sbp_", HEX, 40),
    ("sb_secret_", ANY, 31),
    ("pscale_tkn_", ANY, 43),
    ("pscale_pw_", ANY, 43),
    ("napi_", ANY, 64),
    ("tskey-auth-", ANY, 40),
    ("sgp_", HEX, 40),
    ("squ_", HEX, 40),
    ("sqp_", HEX, 40),
    ("CCIPAT_", ANY, 60),
    ("bkua_", HEX, 40),
    ("ico-", ANY, 32),
    ("pnu_", ANY, 36),
    ("waka_", ANY, 36),
    ("vcp_", ANY, 40),
    ("hcaik_", ANY, 58),
    ("EAACEdEose0cBA", ANY, 120),
    ("y0_", ANY, 58),
    ("AQVN", ANY, 38),
];

#[test]
fn keys_of_over_100_providers_are_found_in_any_context() {
    assert!(FORMS.len() > 100);
    let mut draw = Draw(7);
    let mut wrong = Vec::new();
    for (n, (prefix, alphabet, length)) in FORMS.iter().enumerate() {
        let mut body = draw.text(alphabet, *length);
        body.replace_range(2..4, "7K");
        if alphabet == &HEX {
            body.replace_range(2..4, "7b");
        }
        let key = format!("{prefix}{body}");
        let places =
            ["it is {} I think", "TOKEN={}", "{\"k\": \"{}\"}", "curl -H 'X-Key: {}' x", "see {}, please", "key='{}'"];
        let text = places[n % places.len()].replace("{}", &key);
        if !secrets(&text).iter().any(|s| s.contains(body.as_str())) {
            wrong.push(format!("{text}: {:?}", secrets(&text)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_longest_tokens_are_found_to_their_end() {
    let mut draw = Draw(17);
    for (prefix, length, end) in [
        ("sntrys_eyJpYXQiOjE3MDAwMDAwMDB9", 380, "==_aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3"),
        ("ya29.a0Af_", 2000, "-9"),
        ("xoxe.xoxp-1-", 180, "9"),
        ("xoxe.xoxb-1-", 180, "9"),
        ("hvb.", 290, "9"),
        ("pypi-AgEIcHlwaS5vcmc", 900, "9"),
        ("glc_eyJvIjoi", 380, "9=="),
        ("glpat-", 300, "9.01.120ab34cd"),
        ("glrt-t3_", 290, "9.01.120ab34cd"),
        ("fm2_", 1900, "/9+a=="),
        ("ops_eyJ", 900, "/9+a=="),
    ] {
        let token = format!("{prefix}{}{end}", draw.text(ANY, length));
        assert_eq!(secrets(&format!("it is {token}. Then")), [token.as_str()], "{prefix}");
    }
}

#[test]
fn tokens_without_a_prefix_are_recognised_by_format() {
    let mut draw = Draw(11);
    let (any, hexadecimal) = (draw.text(ANY, 80), draw.text(HEX, 32));
    for key in [
        format!("6123456789:AA{}", &any[..33]),
        format!("MTA{}.G{}.{}", &any[..21], &any[21..26], &any[30..68]),
        format!("a1b8Q~{}", &any[..34]),
        format!("{hexadecimal}-us12"),
        format!("https://hooks.slack.com/services/T{}/B{}/{}", "024BE7LD1", "024BE7LD2", &any[..24]),
        format!("https://discord.com/api/webhooks/{}/{}", "1034567890123456789", &any[..68]),
    ] {
        assert!(secrets(&format!("use {key} for it")).contains(&key), "{key}: {:?}", secrets(&key));
    }
}

#[test]
fn secrets_are_found_in_assignments_headers_and_urls() {
    let mut draw = Draw(13);
    let value = draw.text(ANY, 40);
    for text in [
        format!("aws_secret_access_key = {value}"),
        format!("AccountName=x;AccountKey={value}{value}1234aB==;EndpointSuffix=core.windows.net"),
        format!("Authorization: Bearer {value}"),
        format!("Authorization: Basic {value}"),
        format!("\"clientSecret\": \"{value}\""),
        format!("export DATADOG_API_KEY={value}"),
        format!("  private_key_id: {value}"),
        format!("x-api-key: {value}"),
        format!("--token {value}"),
        format!("https://x.internal/?access_token={value}&a=b"),
    ] {
        assert!(secrets(&text).iter().any(|s| s.contains(&value[..20])), "{text}: {:?}", secrets(&text));
    }
    for (text, word) in [
        ("mysql -u root -p'Xk9#mPq2' db; password: Xk9#mPq2", "Xk9#mPq2"),
        ("spring.datasource.password=Summer2024x", "Summer2024x"),
        ("mongodb+srv://svc:Tr0ub4dor@cluster0.ab1cd.mongodb.net/test", "Tr0ub4dor"),
        ("redis://:s3cretpw1@cache.firm.io:6379/0", "s3cretpw1"),
        ("amqp://app:gu3stPass@mq.firm.io/vhost", "gu3stPass"),
        ("https://deploy:hunter22x@git.firm.io/repo.git", "hunter22x"),
        ("Server=db;User Id=sa;Password=Str0ng!Pw9;", "Str0ng!Pw9"),
        ("my wifi password is Korn-Blume-77", "Korn-Blume-77"),
        ("PGPASSWORD=letMeIn99 psql", "letMeIn99"),
        ("machine api.firm.io login anna password dR7kqPz2", "dR7kqPz2"),
        (
            "KEY=-----BEGIN PRIVATE KEY----- MIIEvQIBADANBgkqhkiG9w0BAQEFAASC -----END PRIVATE KEY-----",
            "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
        ),
        ("curl -u admin:53iO9BnzBX9D https://api.firm.io", "53iO9BnzBX9D"),
        ("curl --user 'anna:kq7Xw2Zp' https://api.firm.io", "kq7Xw2Zp"),
        ("Cookie: sessionid=njK0fmqiXVW0Jt2y8U8sdC2lis8i44wp", "njK0fmqiXVW0Jt2y8U8sdC2lis8i44wp"),
        ("Authorization: SSWS 00ox7KDLnpm7l4mhULyOEbR4r7MEnaobIV", "00ox7KDLnpm7l4mhULyOEbR4r7MEnaobIV"),
    ] {
        assert!(secrets(text).iter().any(|s| s.contains(word)), "{text}: {:?}", secrets(text));
    }
}

#[test]
fn a_value_longer_than_what_is_examined_is_found_to_its_end() {
    let value = Draw(19).text(ANY, 900);
    for text in [
        format!("aws_session_token = {value}\nregion = x"),
        format!("aws_session_token=\"{value}\""),
        format!("https://x.internal/?access_token={value}&a=b"),
    ] {
        assert_eq!(secrets(&text), [value.as_str()], "{text}");
    }
}

#[test]
fn secret_lookalikes_are_not_findings() {
    for text in [
        "api_key = \"YOUR_API_KEY\"",
        "api_key=sk-...",
        "token: <token>",
        "password: ********",
        "PASSWORD=changeme",
        "secret: ${{ secrets.TOKEN }}",
        "export TOKEN=$(cat token.txt)",
        "password = getpass.getpass()",
        "password: str = Field(...)",
        "sk-your-key-here-please-replace",
        "AKIAIOSFODNN7EXAMPLE",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "\"integrity\": \"sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZNrsQ+LFTGHVxVjcXPs17LhbZVGedAJv8XZ1tvj5FvSg==\"",
        "id 550e8400-e29b-41d4-a716-446655440000",
        "the key to success is patience",
        "use the token bucket algorithm",
        "tokens = tokenizer.encode(text)",
        "ssh-rsa keys are public",
        "primary key (customer_id, order_id)",
        "keyboard: qwerty",
        "monkey-patching",
        "key-value store",
        "my password is wrong",
        "Authorization: Bearer <your token>",
        "\"token\": \"string\"",
        "max_tokens: 4096",
        "password must have eight characters",
        "postgres://user:pass@localhost/db",
        "https://user:password@example.com/",
        "credentials: include",
        "secret_santa_list",
        "sk-learn is a library",
        "cache key: linux-x64-node-18-npm-2f5d3a",
        "docker run -u 1000:1000 image",
        "curl -u $USER:$PASS https://firm.io",
        "\"pass\": \"ページには少なくとも1つのレベル1の見出しがあります\"",
        "http://host:8080?mail=a@b",
        "http://host:8080/list?mail=anna@firm.io",
        "http://host:8080#a@b",
        "https://host/a:b?mail=anna@firm.io",
        "redis won't -a x; it's done | y",
    ] {
        let found = Redactor::default().find(text, &RedactionSession::one_way());
        assert!(!found.iter().any(|f| f.kind.is_secret()), "{text}: {found:?}");
    }
}

#[test]
fn passwords_are_found_in_password_files_settings_and_commands() {
    for (text, secret) in [
        ("db.firm.org:5432:shop:anna:kqX7uRTmb2", "kqX7uRTmb2"),
        ("localhost:5432:*:postgres:Wr9vTq!x2", "Wr9vTq!x2"),
        ("SECRET_KEY = 'x2k9!vbq$7m^t1z&8w@e4r(5y)u3i-o6p=a+s0d'", "x2k9!vbq$7m^t1z&8w@e4r(5y)u3i-o6p=a+s0d"),
        ("define('DB_PASSWORD', 'tR7wq9Lmzz');", "tR7wq9Lmzz"),
        ("define( \"DB_PASSWORD\", \"tR7wq9Lmzz\" );", "tR7wq9Lmzz"),
        ("setenv(\"DB_PASSWORD\", \"tR7wq9Lmzz\")", "tR7wq9Lmzz"),
        (
            "define('AUTH_KEY', 'x2k9!vbq$7m^t1z&8w@e4r(5y)u3i-o6p=a+s0dlkj');",
            "x2k9!vbq$7m^t1z&8w@e4r(5y)u3i-o6p=a+s0dlkj",
        ),
        ("variable \"db_password\" {\n  type = string\n  default = \"tR7wq9Lmzz\"\n}", "tR7wq9Lmzz"),
        ("- name: DB_PASSWORD\n  value: tR7wq9Lmzz", "tR7wq9Lmzz"),
        ("<add key=\"DbPassword\" value=\"tR7wq9Lmzz\"/>", "tR7wq9Lmzz"),
        ("<password>tR7wq9Lmzz</password>", "tR7wq9Lmzz"),
        ("anna:$apr1$Zk3sGh1x$8f0bYzq3T1vQmXw2rLk9p1", "$apr1$Zk3sGh1x$8f0bYzq3T1vQmXw2rLk9p1"),
        ("carl:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="),
        (
            "root:$6$Zk3sGh1x$8f0bYzq3T1vQmXw2rLk9p1abcdefgh12:19000:0:99999:7:::",
            "$6$Zk3sGh1x$8f0bYzq3T1vQmXw2rLk9p1abcdefgh12",
        ),
        ("mysql -u root -ptR7wq9Lm shop", "tR7wq9Lm"),
        ("mysqldump -h db -uroot -pS3cretQ9 shop > x", "S3cretQ9"),
        ("sshpass -p tR7wq9Lm ssh root@h", "tR7wq9Lm"),
        ("sshpass -p 'tR7wq 9Lm' ssh root@h", "tR7wq 9Lm"),
        ("redis-cli -a tR7wq9Lm ping", "tR7wq9Lm"),
        ("mot de passe : tR7wq9Lm", "tR7wq9Lm"),
        ("Le mot de passe est tR7wq9Lm.", "tR7wq9Lm"),
        ("La contraseña es tR7wq9Lm", "tR7wq9Lm"),
        ("mdp=tR7wq9Lm", "tR7wq9Lm"),
        ("10.2.0.14:5433:billing:app:tR7wq9Lm", "tR7wq9Lm"),
        ("requirepass tR7wq9Lm", "tR7wq9Lm"),
        ("psk=correcthorse9", "correcthorse9"),
        ("user.set_password(\"tR7wq9Lm\")", "tR7wq9Lm"),
        ("the admin password for the NAS is Qnap!2291", "Qnap!2291"),
        ("unzip -P tR7wq9Lm archive.zip", "tR7wq9Lm"),
        ("openssl enc -aes-256-cbc -k tR7wq9Lm -in a -out b", "tR7wq9Lm"),
        ("rabbitmqctl add_user app tR7wq9Lm", "tR7wq9Lm"),
        ("clave = tR7wq9Lm", "tR7wq9Lm"),
        ("Das Passwort lautet tR7wq9Lm", "tR7wq9Lm"),
        ("Mein Kennwort ist tR7wq9Lm", "tR7wq9Lm"),
        ("password is Tr0ub4dor&3", "Tr0ub4dor&3"),
        ("POST password=tR7wq9Lm&user=anna", "tR7wq9Lm"),
        (r#"password = "hunt\"er2x""#, r#"hunt\"er2x"#),
        (r"password = 'hunt\'er2x', 1", r"hunt\'er2x"),
        (r#"{\"password\": \"hunt\\\"er2x\", \"n\": 1}"#, r#"hunt\\\"er2x"#),
        (r"PASSWORD='hunter2x\' USER='anna'", r"hunter2x\"),
        ("password: Весна!Лето1", "Весна!Лето1"),
        ("mysql -p'hunt;er2x' db; ls", "hunt;er2x"),
        ("mysql -u root -p\"hunt|er2x\" | less", "hunt|er2x"),
        ("mysql -u o'neil -ptR7wq9Lm; ls", "tR7wq9Lm"),
        ("curl -u 'anna:kq7;Xw$2Zp' https://api.firm.io", "kq7;Xw$2Zp"),
        ("postgres://app:Tr0ub4#dor@db.firm.io/x", "postgres://app:Tr0ub4#dor@db.firm.io/x"),
        ("postgres://app:Tr0ub4?dor@db.firm.io/x?ssl=1 y", "postgres://app:Tr0ub4?dor@db.firm.io/x?ssl=1"),
    ] {
        assert_eq!(secrets(text), [secret], "{text}");
    }
    for text in [
        "src/main.rs:1204:let:mut:value",
        "12:30:4500:10:20",
        "mysql -p shop",
        "mysql -u root -p$PASS shop",
        "unzip -P archive.zip",
        "openssl req -keyout key2024.pem -out csr2024.pem",
        "rabbitmqctl add_user app",
        "12.4.0.14:5433:1:2:34567",
        "getpass(\"Password: \")",
        "user.set_password(form.cleaned_data2)",
        "the password for the API is base64-encoded",
        "the password for the server is required",
        "sshpass -p <password> ssh host",
        "echo $6$",
        "t('password', 'Password')",
        "define('WP_DEBUG', true);",
        "variable \"db_password\" {\n  type = string\n}",
        "the password is required and the mot de passe est obligatoire",
    ] {
        assert_eq!(secrets(text), [] as [String; 0], "{text}");
    }
}
