//! Generated programs: run where the tool is installed, compared with the expected text elsewhere; and the page to share.

use std::path::Path;
use std::process::Command;

use interflow_archive::ArchiveFormat;
use interflow_types::{Headers, Scheme};

use super::commands::origin;
use super::{exchange, export, exported};

/// Bytes that end strings, or begin escapes, variables and comments in one language or another.
const HARD: &str = "a'b\"c\\d$HOME ${x} `e` %f #{g} {{h}} //i /*j*/ \u{e9}\u{2019}\u{2028}\u{1f600}\t\r\nk\\u0041 \\x41 \\0 */ --> ]]> \\";
const FIELD: &str = "it's \"so\" $HOME `x` \\n";

/// The output of a program, or `None` if it is not installed.
fn output(program: &str, arguments: &[&str], folder: &Path) -> Option<Vec<u8>> {
    let run = match Command::new(program).args(arguments).current_dir(folder).env("NO_PROXY", "*").output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("{program} is not installed: its code is not run");
            return None;
        }
        run => run.unwrap(),
    };
    assert!(run.status.success(), "{program}: {}", String::from_utf8_lossy(&run.stderr));
    Some(run.stdout)
}

/// In place of the real module, which may not be installed: it prints what it is called with.
const REQUESTS: &str = "import types
def request(method, url, headers, data, allow_redirects):
  text = [method.encode(), url.encode()]
  for n, v in headers.items(): text += [n.encode(), v]
  text.append(data)
  return types.SimpleNamespace(status_code=' '.join('x' + t.hex() for t in text), text='')
";

#[test]
fn python_reads_the_literals_as_the_recorded_bytes() {
    let fields = [("X-Hard", FIELD), ("X-Latin", "\u{e9}"), ("X-Empty", "")];
    let binary: Vec<u8> = (0..=255).collect();
    for body in [HARD.as_bytes(), &binary] {
        let flow = exchange("PATCH", "/a'\\?b=%22", &fields, body, b"");
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("main.py"), exported(ArchiveFormat::Python, &flow)).unwrap();
        std::fs::write(dir.path().join("requests.py"), REQUESTS).unwrap();
        let Some(said) = output("python3", &["main.py"], dir.path()) else { return };
        let mut expected = vec![&b"PATCH"[..], b"https://api.example.com/a'\\?b=%22"];
        fields.iter().for_each(|(n, v)| expected.extend([n.as_bytes(), v.as_bytes()]));
        expected.push(body);
        let expected: Vec<String> = expected.iter().map(|b| format!("x{}", hex::encode(b))).collect();
        assert_eq!(String::from_utf8(said).unwrap().trim(), expected.join(" "));
    }
}

/// Runs generated code against an origin; the fields and the body must arrive.
fn sent_by_program(format: ArchiveFormat, program: &str, file: &str, body: &[u8]) {
    let (port, taken) = origin();
    let mut flow = exchange("POST", "/x?a=%22", &[("X-Hard", FIELD), ("X-Two", "2")], body, b"");
    flow.row.scheme = Scheme::Http;
    flow.row.authority = format!("127.0.0.1:{port}").parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(file), exported(format, &flow)).unwrap();
    if output(program, &[file], dir.path()).is_none() {
        return;
    }
    let bytes = taken.join().unwrap();
    let split = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&bytes[..split]).to_lowercase();
    assert!(head.starts_with("post /x?a=%22 http/1.1\r\n"), "{head}");
    for field in [format!("x-hard: {}\r\n", FIELD.to_lowercase()), "x-two: 2".to_owned()] {
        assert!(head.contains(&field), "{field}: {head}");
    }
    assert_eq!(&bytes[split + 4..], body);
}

#[test]
fn javascript_and_java_send_the_recorded_request() {
    let binary: Vec<u8> = (0..=255).collect();
    sent_by_program(ArchiveFormat::Fetch, "node", "main.mjs", HARD.as_bytes());
    sent_by_program(ArchiveFormat::Fetch, "node", "main.mjs", &binary);
    let long = format!("{HARD}{}", "\u{e9}x".repeat(30_000));
    sent_by_program(ArchiveFormat::Java, "java", "Main.java", long.as_bytes());
    sent_by_program(ArchiveFormat::Java, "java", "Main.java", &binary);
}

#[test]
fn go_code_is_formatted_as_gofmt_does() {
    let hard = exchange("POST", "/x", &[("Host", "other"), ("X", FIELD)], HARD.as_bytes(), b"");
    for flow in [hard, exchange("GET", "/", &[], b"", b"")] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("main.go"), exported(ArchiveFormat::Go, &flow)).unwrap();
        let Some(differences) = output("gofmt", &["-d", "main.go"], dir.path()) else { return };
        assert_eq!(String::from_utf8(differences).unwrap(), "");
    }
}

#[test]
fn other_languages_reproduce_the_request() {
    let fields = [("A", "$\u{e9}'\""), ("Content-Type", "t/p"), ("A", "2")];
    let flow = exchange("LINK", "/x?a='", &fields, b"b'o$\"dy\n", b"");
    let expected: [(ArchiveFormat, &[&str]); 5] = [
        (
            ArchiveFormat::Php,
            &[
                "<?php\n",
                "CURLOPT_CUSTOMREQUEST => \"LINK\"",
                r#""A: \$\xC3\xA9'\"""#,
                r#"CURLOPT_POSTFIELDS => "b'o\$\"dy\n""#,
            ],
        ),
        (
            ArchiveFormat::PowerShell,
            &[
                "-Uri 'https://api.example.com/x?a=''' -CustomMethod 'LINK'",
                "'A' = '$\u{c3}\u{a9}''\", 2'",
                "GetBytes('b''o$\"dy\n')",
            ],
        ),
        (
            ArchiveFormat::CSharp,
            &[
                "new HttpMethod(\"LINK\")",
                r#"request.Headers.TryAddWithoutValidation("A", "$\u00c3\u00a9'\", 2")"#,
                r#"request.Content.Headers.TryAddWithoutValidation("Content-Type", "t/p")"#,
            ],
        ),
        (
            ArchiveFormat::Rust,
            &[
                r#"Method::from_bytes(b"LINK")?"#,
                r#".header("A", &b"$\xc3\xa9'\""[..])"#,
                r#".body(&b"b'o$\"dy\n"[..])"#,
            ],
        ),
        (ArchiveFormat::Go, &[r#"http.NewRequest("LINK""#, r#"request.Header.Add("A", "$\xc3\xa9'\"")"#]),
    ];
    for (format, parts) in expected {
        let text = exported(format, &flow);
        for part in parts {
            assert!(text.contains(part), "{format}: {part}\n{text}");
        }
    }
}

#[test]
fn masked_values_become_variables() {
    let fields = [("Authorization", "Bearer *** (11 bytes)"), ("X-Api-Key", "*** (3 bytes)")];
    let flow = exchange("GET", "/", &fields, b"", b"");
    let note = "The value of Authorization was masked in the recording: fill in $AUTHORIZATION\n";
    let curl = exported(ArchiveFormat::Curl, &flow);
    assert!(curl.starts_with(&format!("# {note}")), "{curl}");
    assert!(curl.contains("-H 'Authorization: Bearer '\"$AUTHORIZATION\" -H 'X-Api-Key: '\"$X_API_KEY\" "), "{curl}");
    let php = exported(ArchiveFormat::Php, &flow);
    assert!(php.starts_with(&format!("<?php\n// {note}")), "{php}");
    assert!(php.contains(r#""Authorization: Bearer \$AUTHORIZATION""#), "{php}");
}

#[test]
fn page_has_no_scripts_no_resources_and_no_markup_of_the_flow() {
    let evil = "<script>alert(1)</script><img src=http://evil.test/>";
    let mut flow = exchange("GET", "/?<b>", &[("X-Evil", evil)], evil.as_bytes(), b"{\"a\":[1]}");
    flow.row.comment = Some(evil.to_owned());
    let page = exported(ArchiveFormat::Html, &flow);
    let json = "&quot;a&quot;: [\n    1\n  ]";
    for wanted in ["default-src 'none'", "&lt;script&gt;alert(1)", json, "api.example.com", "</html>"] {
        assert!(page.contains(wanted), "{wanted}\n{page}");
    }
    for refused in ["<script", "<img src", "<link", "href=", "<b>"] {
        assert!(!page.contains(refused), "{refused}\n{page}");
    }
    let mut picture = exchange("GET", "/p.png", &[], b"", b"\x89PNG\r\n\x1a\n1234");
    picture.row.response.as_mut().unwrap().headers = Headers::new();
    let page = String::from_utf8(export(ArchiveFormat::Html, &[picture])).unwrap();
    assert!(page.contains("src=\"data:image/png;base64,iVBORw0KGgoxMjM0\""), "{page}");
}
