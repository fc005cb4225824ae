//! The public API: bodies in, redacted bodies out, responses restored.

#[path = "redact/values.rs"]
mod values;

use std::sync::Arc;

use interflow_redact::{
    EscapeLevel, FindingCache, JsonSpan, Kind, PlaceholderRestorer, PlaceholderVault, Policy, RedactError,
    RedactionSession, Redactor, StopFlag, VaultKey, string_values,
};
use proptest::prelude::*;
use serde_json::json;

fn reversible() -> RedactionSession {
    RedactionSession::reversible(PlaceholderVault::new(&VaultKey::for_conversation(&[5; 32], b"test")))
}

fn found(text: &str) -> Vec<(Kind, String)> {
    let redactor = Redactor::default();
    let spans = redactor.find(text, &RedactionSession::one_way());
    spans.iter().map(|f| (f.kind, text[f.start..f.end].to_owned())).collect()
}

fn toml(policy: &str) -> Redactor {
    Redactor::new(Policy::parse(policy).expect("a policy"))
}

fn redact(redactor: &Redactor, text: &str) -> String {
    redactor
        .redact_text(text, &mut RedactionSession::one_way())
        .expect("text")
        .output
        .unwrap_or_else(|| text.to_owned())
}

#[test]
fn structured_values_are_found_with_their_kind() {
    for (text, kind, value) in [
        ("My card is 4111 1111 1111 1111 thanks", Kind::CreditCard, "4111 1111 1111 1111"),
        ("card 3782-822463-10005.", Kind::CreditCard, "3782-822463-10005"),
        ("SSN 123-45-6789", Kind::Ssn, "123-45-6789"),
        ("SSN 123\u{2011}45\u{2011}6789", Kind::Ssn, "123\u{2011}45\u{2011}6789"),
        ("ssn: 123-45-\n6789", Kind::Ssn, "123-45-\n6789"),
        ("ssn １２３-４５-６７８９", Kind::Ssn, "１２３-４５-６７８９"),
        ("card 4111\u{fe0f} 1111 11\u{2066}11 1111.", Kind::CreditCard, "4111\u{fe0f} 1111 11\u{2066}11 1111"),
        ("123-45-6789", Kind::Ssn, "123-45-6789"),
        ("answer 999-99-9999", Kind::Itin, "999-99-9999"),
        ("IBAN DE89 3704 0044 0532 0130 00", Kind::Iban, "DE89 3704 0044 0532 0130 00"),
        ("pay to NL91ABNA0417164300 now", Kind::Iban, "NL91ABNA0417164300"),
        ("FR1420041010050500013M02606", Kind::Iban, "FR1420041010050500013M02606"),
        ("write to j.o'neil+tag@mail.example.co.uk.", Kind::Email, "j.o'neil+tag@mail.example.co.uk"),
        ("call (212) 555-0143 x12", Kind::Phone, "(212) 555-0143 x12"),
        ("tel +49 30 901820", Kind::Phone, "+49 30 901820"),
        ("or +1-202-555-0199!", Kind::Phone, "+1-202-555-0199"),
        ("host 203.0.113.77 is down", Kind::IpAddress, "203.0.113.77"),
        ("from 2001:db8:85a3::8a2e:370:7334 port 1", Kind::IpAddress, "2001:db8:85a3::8a2e:370:7334"),
        ("mac 00:1B:44:11:3A:B7", Kind::MacAddress, "00:1B:44:11:3A:B7"),
        ("see https://www.acme-toys.biz/a?b=c).", Kind::Url, "https://www.acme-toys.biz/a?b=c"),
        ("VIN 1M8GDM9AXKP042788", Kind::Vin, "1M8GDM9AXKP042788"),
        ("to 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", Kind::Bitcoin, "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"),
        ("bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4", Kind::Bitcoin, "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"),
        ("CPF 529.982.247-25", Kind::Cpf, "529.982.247-25"),
        ("DNI 12345678Z", Kind::Dni, "12345678Z"),
        ("codice fiscale RSSMRA85T10A562S", Kind::CodiceFiscale, "RSSMRA85T10A562S"),
        ("rut 12.345.678-5", Kind::Rut, "12.345.678-5"),
        ("rut 10.000.013-K", Kind::Rut, "10.000.013-K"),
        ("Personalausweis L01X00T471", Kind::Personalausweis, "L01X00T471"),
        ("NHS number 943 476 5919", Kind::Nhs, "943 476 5919"),
        ("born on 1/30/1950", Kind::Date, "1/30/1950"),
        ("born March 12, 1987 in", Kind::Date, "March 12, 1987"),
        ("a 50 year old man", Kind::Age, "50 year old"),
        ("location 52.520008, 13.404954", Kind::Gps, "52.520008, 13.404954"),
        ("error in /home/priya/app.py", Kind::Username, "priya"),
        (r"see C:\Users\jgibson\x.txt", Kind::Username, "jgibson"),
        ("username: jgibson42", Kind::Username, "jgibson42"),
        ("ZIP code 90210", Kind::ZipCode, "90210"),
        ("passport number 123456789", Kind::Passport, "123456789"),
    ] {
        assert!(found(text).contains(&(kind, value.to_owned())), "{text:?}: {:?}", found(text));
    }
}

#[test]
fn adjacent_values_are_all_found() {
    let values = |text: &str| found(text).into_iter().map(|f| f.1).collect::<Vec<_>>();
    assert_eq!(values("SSNs 123-45-6789 987-65-4320"), ["123-45-6789", "987-65-4320"]);
    assert_eq!(values("from date 2024-06-01-2024-06-30"), ["2024-06-01", "2024-06-30"]);
    assert_eq!(values("cards 4111 1111 1111 1111 5500 0000 0000 0004"), ["4111 1111 1111 1111", "5500 0000 0000 0004"]);
    // No quantity is grouped like this, although a unit follows.
    let texts = "4111 1111 1111 1111 MW, 5500-0000-0000-0004 kg, 123-45-6789 Pa";
    assert_eq!(values(texts), ["4111 1111 1111 1111", "5500-0000-0000-0004", "123-45-6789"]);
}

#[test]
fn technical_numbers_are_not_findings() {
    for text in [
        "pi is 3.14159265358979",
        "version 10.2.3.4 of the tool",
        "took 1234567890123 ns",
        "CVE-2024-12345 and RFC 2616",
        "id 550e8400-e29b-41d4-a716-446655440000",
        "commit 3f2a9c1e4b5d6f7a8b9c0d1e2f3a4b5c6d7e8f90",
        "127.0.0.1:8080 and 0.0.0.0",
        "port 65535, size 1048576, 12:30:45",
        "4111 1111 1111 1112",
        "std::vec::Vec and a::b",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn secrets_are_found_and_placeholders_are_not() {
    // Concatenated here, so that no secret scanner reports this file.
    let hidden = |a: &str, b: &str| format!("{a}{b}");
    for (text, kind) in [
        (hidden("key sk-ant-", "api03-Zx9kQ2mWv7Lp4Rt8Yb1Nc6Hd3Jf5Gs0A-aB"), Kind::ApiKey),
        (hidden("AKIA", "Q3EGRJ7ZP4W2MN5X"), Kind::CloudCredential),
        (hidden("ghp_", "16C7e42F292c6912E7710c838347Ae178B4a"), Kind::Token),
        (hidden("eyJhbGciOiJIUzI1NiJ9.", "eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"), Kind::Jwt),
        ("postgres://app:s3cr3tPw@db.internal:5432/x".to_owned(), Kind::ConnectionString),
        ("password = \"hunter2!x\"".to_owned(), Kind::Password),
        ("DB_PASSWORD=Tr0ub4dor&3".to_owned(), Kind::Password),
        (hidden("\"client_secret\": \"", "a8F3kL9qWz2XcV7bN4mT\""), Kind::Secret),
        ("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n-----END PRIVATE KEY-----".to_owned(), Kind::PrivateKey),
    ] {
        assert!(found(&text).iter().any(|f| f.0 == kind), "{text}: {:?}", found(&text));
    }
    for text in [
        "AKIAIOSFODNN7EXAMPLE",
        "api_key = \"<your-api-key>\"",
        "password: ${DB_PASSWORD}",
        "token = os.environ[\"TOKEN\"]",
        "sk-xxxxxxxxxxxxxxxxxxxxxxxx",
        "let password = read_password(path)?;",
        "password: String,",
        "the secret of success is work",
        "postgres://user:password@localhost/db",
    ] {
        assert!(!found(text).iter().any(|f| f.0.is_secret()), "{text}: {:?}", found(text));
    }
}

#[test]
fn people_places_and_organisations_are_found() {
    for (text, kind, value) in [
        ("My name is Jenny Gibson.", Kind::Person, "Jenny Gibson"),
        ("my name is jenny gibson", Kind::Person, "jenny gibson"),
        ("We met Dr. Wojciechowska there", Kind::Person, "Wojciechowska"),
        ("talk to Ludwig van Beethoven now", Kind::Person, "Ludwig van Beethoven"),
        ("She lives in Reykjavik now", Kind::Location, "Reykjavik"),
        ("I moved to New York last year", Kind::Location, "New York"),
        ("Priyanka did it, see priyanka.r@firm.com", Kind::Person, "Priyanka"),
        ("He works at Brightmoor Technologies Inc in town", Kind::Organization, "Brightmoor Technologies Inc"),
        (
            "send it to 123 Main Street, Springfield, IL 62704.",
            Kind::StreetAddress,
            "123 Main Street, Springfield, IL 62704",
        ),
        ("wohnt in der Hauptstraße 12", Kind::StreetAddress, "Hauptstraße 12"),
        ("at 12 Rue de la Paix, Paris", Kind::StreetAddress, "12 Rue de la Paix, Paris"),
    ] {
        assert!(found(text).contains(&(kind, value.to_owned())), "{text:?}: {:?}", found(text));
    }
}

#[test]
fn ordinary_words_are_not_findings() {
    for text in [
        "The quick brown fox jumps over the lazy dog.",
        "Please set the Content-Type header and restart the Docker container.",
        "Capitalized words like Wisdom and Discipline are often mistaken with names.",
        "Hi Claude, read /home/user/notes and /Users/runner/x.",
        "Use Kubernetes with Helm, Terraform or Ansible on Linux.",
        "CAN I SPEAK TO A REAL PERSON?!",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn redacted_body_differs_only_inside_redacted_strings() {
    let body = br#"{ "model":"x","max_tokens":9007199254740993,"t":1.0e2 ,
 "messages":[{"role":"user","content":"caf\u00e9 \ud83d SSN 123-45-6789 \/ ok"}],"z":"\u003cb\u003e" }"#;
    let out = Redactor::default().redact_json(body, &mut RedactionSession::one_way()).expect("JSON");
    let wanted = String::from_utf8_lossy(body).replace("123-45-6789", "{{{REDACTED-ssn}}}");
    assert_eq!(String::from_utf8_lossy(&out.output.expect("changed")), wanted);
    assert_eq!(&body[out.spans[0].start..out.spans[0].end], b"123-45-6789");
}

#[test]
fn json_in_strings_is_edited_in_place() {
    let inner = r#"{"to":"a \"b\" anna@firm.com","n":9007199254740993}"#;
    let body = serde_json::to_vec(&json!({"arguments": inner})).expect("JSON");
    let mut session = reversible();
    let out = Redactor::default().redact_json(&body, &mut session).expect("JSON").output.expect("changed");
    let outer: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    let arguments = outer["arguments"].as_str().expect("a string");
    assert!(arguments.contains("9007199254740993") && !arguments.contains("anna@"), "{arguments}");
    let to = serde_json::from_str::<serde_json::Value>(arguments).expect("JSON inside")["to"].clone();
    assert_eq!(session.vault().expect("a vault").restore(to.as_str().expect("text")), "a \"b\" anna@firm.com");
}

#[test]
fn keys_and_numbers_of_nested_json_are_redacted() {
    let inner =
        r#"{"anna.berg@firm.com":{"card":4111111111111111,"ssn":536228726,"n":5,"deep":"{\"ssn\":[536228726]}"}}"#;
    let real: serde_json::Value = serde_json::from_str(inner).expect("JSON");
    for body in [json!({"text": inner}), json!({"text": real}), json!({"text": format!(" {inner}\n")})] {
        let body = body.to_string();
        let mut session = reversible();
        let out =
            Redactor::default().redact_json(body.as_bytes(), &mut session).expect("JSON").output.expect("changed");
        let out = String::from_utf8(out).expect("UTF-8");
        for value in ["anna.berg", "4111111111111111", "536228726"] {
            assert!(!out.contains(value), "{out}");
        }
        let outer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        let text = outer["text"].as_str().map_or_else(|| outer["text"].to_string(), str::to_owned);
        let told: serde_json::Value = serde_json::from_str(&text).expect("JSON inside");
        let (_, members) = told.as_object().expect("an object").iter().next().expect("a member");
        assert_eq!(members["n"], 5);
        assert!(members["card"].is_string());
        let restored = session.vault().expect("a vault").restore(&text).into_owned();
        let restored: serde_json::Value = serde_json::from_str(&restored).expect("JSON again");
        assert_eq!(restored["anna.berg@firm.com"]["card"], "4111111111111111");
    }
    let policy = Policy::from_toml("[kind.ssn]\nstrategy = { use = \"last-four\" }\n").expect("a policy");
    let body = br#"{"ssn":536228726}"#;
    let out = Redactor::new(policy)
        .redact_json(body, &mut RedactionSession::one_way())
        .expect("JSON")
        .output
        .expect("changed");
    assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok() && !out.windows(9).any(|w| w == b"536228726"));
}

#[test]
fn only_the_given_spans_are_redacted() {
    let body = br#"{"id":"anna@firm.com","text":"anna@firm.com"}"#;
    let second = string_values(body).expect("JSON").remove(1);
    let out = Redactor::default().redact_spans(body, [second], &mut RedactionSession::one_way()).expect("JSON");
    assert_eq!(out.output.expect("changed"), br#"{"id":"anna@firm.com","text":"{{{REDACTED-email-address}}}"}"#);
    let outside = Redactor::default().redact_spans(b"{}", [JsonSpan::text(5..9)], &mut RedactionSession::one_way());
    assert!(matches!(outside, Err(RedactError::Json { .. })));
}

#[test]
fn member_name_determines_the_kind_of_its_value() {
    let body = br#"{"password":"hunter2x","ssn":"123456789","userName":"q","note":"123456789"}"#;
    let out = Redactor::default().redact_json(body, &mut RedactionSession::one_way()).expect("JSON");
    let kinds: Vec<_> = out.spans.iter().map(|s| s.kind).collect();
    assert_eq!(kinds, [Kind::Password, Kind::Ssn]);
}

fn redact_json(redactor: &Redactor, body: &str) -> String {
    let out = redactor.redact_json(body.as_bytes(), &mut RedactionSession::one_way()).expect("JSON").output;
    out.map_or_else(|| body.to_owned(), |out| String::from_utf8(out).expect("UTF-8"))
}

#[test]
fn the_whole_value_of_a_member_is_a_password() {
    for value in [
        "xK9,mQ2;vL7",
        "hunter22,x",
        "Summer24!",
        "swordfish",
        "'ab\"c<d>\\e",
        "**x9!",
        "hunter22 and more",
        " hunter22 ",
        "\"hunter22\"",
    ] {
        let out = redact_json(&Redactor::default(), &json!({"password": value}).to_string());
        let out: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(out["password"].as_str().expect("text").trim(), "{{{REDACTED-password}}}", "{value}");
    }
    for value in ["", "changeme", "********", "Passwords must have eight characters.", "${DB_PASSWORD}"] {
        let body = json!({"password": value}).to_string();
        assert_eq!(redact_json(&Redactor::default(), &body), body);
    }
}

#[test]
fn a_member_is_read_like_a_quoted_value() {
    for (name, value, replaced) in [
        ("client_secret", "aB3dE5fG7hJ9kL1m,N3pQ", "{{{REDACTED-secret}}}"),
        ("client_secret", "aB3dE5fG7hJ9kL1mN3pQ; Path=/", "{{{REDACTED-secret}}}; Path=/"),
        ("SECRET_KEY", "x2k9!vbq$7m^t1z&8w@e4r(5y)u3i-o6p=a+s0d", "{{{REDACTED-secret}}}"),
        ("last_name", "BERG", "{{{REDACTED-person}}}"),
        ("address", "Long Row 12, Upper Floor", "{{{REDACTED-street-address}}}"),
        ("username", "jgibson", "{{{REDACTED-username}}}"),
        ("token", "the token of the bus, and more", "the token of the bus, and more"),
    ] {
        let out = redact_json(&Redactor::default(), &json!({name: value}).to_string());
        assert_eq!(out, json!({name: replaced}).to_string(), "{name}");
    }
}

#[test]
fn conversation_is_redacted_and_restored() {
    let redactor = Redactor::default();
    let mut session = reversible();
    let first = redactor
        .redact_text("I am Jenny Gibson, mail jenny@firm.com", &mut session)
        .expect("text")
        .output
        .expect("changed");
    let again = redactor.redact_text("Ask Jenny Gibson.", &mut session).expect("text");
    assert!(first.contains(&again.spans[0].replacement), "the same value keeps its placeholder");
    let vault = session.vault().expect("a vault");
    let mut restorer = PlaceholderRestorer::new(EscapeLevel::Plain);
    let mut out = String::new();
    for piece in first.as_bytes().chunks(3) {
        restorer.push(vault, std::str::from_utf8(piece).expect("ASCII"), &mut out);
    }
    restorer.finish(vault, &mut out).expect("whole");
    assert_eq!(out, "I am Jenny Gibson, mail jenny@firm.com");
}

#[test]
fn policy_selects_kinds_and_strategies() {
    let redactor = toml(
        r##"
        name = "mine"
        kinds = ["email-address", "ssn", "credit-card"]
        strategy = { use = "redact", format = "[%t]" }
        never = ["info@firm.com"]
        [kind.ssn]
        strategy = { use = "last-four" }
        [kind.credit-card]
        strategies = [{ condition = 'token startswith "4"', use = "mask", character = "#" }]
        [[terms]]
        name = "project"
        terms = ["Blue Falcon"]
        strategy = { use = "replace", with = "the project" }
        [[patterns]]
        name = "badge"
        pattern = 'B-(\d{4})'
        group = 1
        "##,
    );
    assert_eq!(redact(&redactor, "anna@firm.com info@firm.com"), "[email-address] info@firm.com");
    assert_eq!(redact(&redactor, "ssn 123-45-6789"), "ssn ***-**-6789");
    assert_eq!(redact(&redactor, "4111111111111111 5500000000000004"), "################ 5500000000000004");
    assert_eq!(redact(&redactor, "blue falcon B-1234"), "the project B-[badge]");
    assert_eq!(redact(&redactor, "Jenny Gibson"), "Jenny Gibson");
}

#[test]
fn kinds_disabled_by_default_are_found_if_the_policy_lists_them() {
    let redactor = toml("kinds = ['currency', 'state-abbreviation', 'phone-number-extension']\nconfidence = 20");
    let text = "paid $1,234.50 and 99 EUR in CA, ext. 12 or x345";
    let mark = |kind: &str| format!("{{{{{{REDACTED-{kind}}}}}}}");
    let (money, state, ext) = (mark("currency"), mark("state-abbreviation"), mark("phone-number-extension"));
    assert_eq!(redact(&redactor, text), format!("paid {money} and {money} in {state}, {ext} or {ext}"));
    assert_eq!(redact(&Redactor::default(), "paid $1,234.50"), "paid $1,234.50");
}

#[test]
fn phone_regions_of_the_policy_select_national_formats() {
    let at_home = toml("kinds = ['phone-number']");
    let in_spain = toml("kinds = ['phone-number']\nphone-regions = ['ES', 'dk']");
    for (text, us, es) in [
        ("612 345 678", false, true),
        ("32 45 67 89", false, true),
        ("(212) 555-0143", true, true),
        ("+34 612 345 678", true, true),
    ] {
        let hit = |r: &Redactor| redact(r, text) != text;
        assert_eq!((hit(&at_home), hit(&in_spain)), (us, es), "{text}");
    }
}

#[test]
fn ignored_finding_does_not_uncover_values_inside_it() {
    // The URL as a whole is on the ignore list; the address inside it is not.
    let redactor = toml("never-patterns = ['https://.*']");
    let out = redact(&redactor, "see https://firm.com/?u=anna@firm.com now");
    assert!(!out.contains("anna"), "{out}");
}

#[test]
fn policy_mistakes_are_reported_with_a_suggestion() {
    for (policy, words) in [
        ("kind = 1", "it is the number `1`"),
        ("kinds = [\"emial-address\"]", "did you mean `email-address`?"),
        ("stratgy = { use = \"redact\" }", "did you mean `strategy`?"),
        ("strategy = { use = \"encrypt\" }", "crypto.key"),
        ("strategy = { use = \"redct\" }", "did you mean `redact`?"),
        ("[[patterns]]\nname = \"x\"\npattern = '('", "cannot be used"),
        ("{\"identifiers\":{\"emailAdress\":{}}}", "did you mean `emailAddress`?"),
        ("{\"identifiers\":{\"ssn\":{\"ssnFilterStrategies\":[{\"strategy\":\"REDCT\"}]}}}", "did you mean `REDACT`?"),
        ("{", "not JSON"),
        ("confidence = 200", "more than 100 percent"),
        ("[kind.ssn]\nconfidence = 101", "more than 100 percent"),
        ("strategy = { use = \"mask\", length = 99999999999 }", "more than 10,000 characters"),
        ("[kind.date]\nstrategy = { use = \"shift\", years = 20000 }", "19,998 years"),
        ("[kind.ssn]\nstrategies = [{ condition = 'token is \"x\"', use = \"year\" }]", "birthdate and deathdate"),
    ] {
        let error = Policy::parse(policy).expect_err(policy).to_string();
        assert!(error.contains(words), "{policy}: {error}");
    }
}

#[test]
fn phileas_policy_is_accepted_unchanged() {
    let redactor = toml(
        r#"{"name":"p","identifiers":{
            "ssn":{"ssnFilterStrategies":[{"strategy":"REDACT","redactionFormat":"{{{REDACTED-%t}}}"}]},
            "emailAddress":{"emailAddressFilterStrategies":[{"strategy":"MASK","maskCharacter":"x","maskLength":"same"}],"ignored":["info@firm.com"]},
            "creditCard":{"enabled":false},
            "zipCode":{"zipCodeFilterStrategy":[{"strategy":"TRUNCATE","truncateDigits":2}]},
            "dictionaries":[{"classification":"drug","terms":["Aspirin"],"customFilterStrategies":[{"strategy":"STATIC_REPLACE","staticReplacement":"(drug)"}]}],
            "identifiers":[{"pattern":"[A-Z]{3}\\d{3}","classification":"code"}],
            "sections":[{"startPattern":"BEGIN","endPattern":"END"}]},
          "ignored":[{"name":"n","terms":["123-45-6789"]}]}"#,
    );
    assert_eq!(redactor.policy().name(), "p");
    assert_eq!(redact(&redactor, "321-54-9876 and 123-45-6789"), "{{{REDACTED-ssn}}} and 123-45-6789");
    assert_eq!(redact(&redactor, "ab@cd.com info@firm.com"), "xxxxxxxxx info@firm.com");
    assert_eq!(redact(&redactor, "card 4111111111111111"), "card 4111111111111111");
    assert_eq!(redact(&redactor, "zip 90210, aspirin"), "zip 90***, (drug)");
    assert_eq!(redact(&redactor, "code ABC123 BEGIN x END"), "code {{{REDACTED-id}}} {{{REDACTED-section}}}");
}

#[test]
fn a_term_that_is_added_to_a_file_of_the_policy_is_found_despite_the_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("terms.txt");
    let memo = Arc::new(FindingCache::new(8).expect("random bytes"));
    let text = format!("{} bluebird", "word ".repeat(80));
    let policy = |identifiers: serde_json::Value| json!({"identifiers": identifiers}).to_string();
    let strategy = json!([{"strategy": "STATIC_REPLACE", "staticReplacement": "X"}]);
    for (policy, before, after) in [
        (
            policy(json!({"dictionaries": [{"files": [path], "customFilterStrategies": strategy}]})),
            text.clone(),
            text.replace("bluebird", "X"),
        ),
        (
            policy(
                json!({"identifiers": [{"pattern": "bluebird", "ignoredFiles": [path], "identifierFilterStrategies": strategy}]}),
            ),
            text.replace("bluebird", "X"),
            text.clone(),
        ),
    ] {
        for (terms, expected) in [("falcon\n", before), ("falcon\nbluebird\n", after)] {
            std::fs::write(&path, terms).expect("a file");
            assert_eq!(redact(&toml(&policy).with_cache(Arc::clone(&memo)), &text), expected, "{terms}");
        }
    }
}

#[test]
fn the_schema_names_every_key() {
    let schema = Policy::schema().to_string();
    for key in ["valid-cards-only", "never-patterns", "last-four", "case-sensitive"] {
        assert!(schema.contains(key), "{key}");
    }
}

#[test]
fn finding_cache_does_not_change_results() {
    let memo = Arc::new(FindingCache::new(100).expect("random bytes"));
    let redactor = Redactor::default().with_cache(memo.clone());
    let text = format!("{} jenny@firm.com", "word ".repeat(80));
    let first = redactor.redact_text(&text, &mut reversible()).expect("text");
    let second = redactor.redact_text(&text, &mut reversible()).expect("text");
    assert_eq!((memo.len(), &first), (1, &second));
}

proptest! {
    #[test]
    fn json_without_findings_is_unchanged(numbers in prop::collection::vec(any::<f64>(), 0..5), words in prop::collection::vec("[a-z]{1,3}", 0..5)) {
        let body = serde_json::to_vec_pretty(&json!({"a": numbers, "b": {"c": words}})).expect("JSON");
        let out = Redactor::default().redact_json(&body, &mut RedactionSession::one_way()).expect("JSON");
        prop_assume!(out.spans.is_empty());
        prop_assert_eq!(out.output, None);
    }

    #[test]
    fn redacted_json_can_be_restored(text in "([A-Za-z ,.é\"\\\\]{0,12} (jenny@firm\\.com|123-45-6789|Jenny Gibson|4111 1111 1111 1111|\n)[ \n]){0,5}") {
        let redactor = Redactor::default();
        let mut session = reversible();
        let body = serde_json::to_vec(&json!({"x": text})).expect("JSON");
        let out = redactor.redact_json(&body, &mut session).expect("JSON").output.unwrap_or(body);
        let value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        let redacted = value["x"].as_str().expect("a string");
        prop_assert!(!redacted.contains("jenny@") && !redacted.contains("6789") && !redacted.contains("4111"), "{}", redacted);
        prop_assert_eq!(session.vault().expect("a vault").restore(redacted), text);
    }

    #[test]
    fn nested_json_strings_stay_valid_json_at_any_depth(levels in 0usize..4, lead in "[a-z\n\"\\\\ ]{0,4}", tail in "[a-z\n\"\\\\\\t]{0,3}") {
        let text = format!("{lead}\njenny@firm.com\n{tail}");
        let mut body = json!({"n": 9_007_199_254_740_993_u64, "x": text});
        for _ in 0..levels {
            body = json!({"inner": body.to_string(), "more": [1.5, null]});
        }
        let body = serde_json::to_vec(&body).expect("JSON");
        let mut session = reversible();
        let out = Redactor::default().redact_json(&body, &mut session).expect("JSON").output.expect("a change");
        let mut value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        for _ in 0..levels {
            value = serde_json::from_str(value["inner"].as_str().expect("a string")).expect("JSON inside");
        }
        prop_assert_eq!(&value["n"], &json!(9_007_199_254_740_993_u64));
        let redacted = value["x"].as_str().expect("a string");
        prop_assert!(!redacted.contains("jenny@"), "{}", redacted);
        prop_assert_eq!(session.vault().expect("a vault").restore(redacted), text);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,80}") {
        let _ = redact(&Redactor::default(), &text);
    }
}

proptest! {
    #[test]
    fn arbitrary_detector_words_never_panic(words in prop::collection::vec(prop::sample::select(vec![
        "Unit", "Box", "12", "St", "Street", "Rue", "de", "la", "PO", "P", "O", "Apt", "FPO", "AP", "12345", "New", "York", "San", "Mr", "Dr", "J", "van", "Anna",
        "Inc", "Bank", "of", "May", "March", "1st", "1999", "age", "years", "old", "aged", "password", "is", "key", ":", "=", "\"", "'", "@", "://", "www", "com", "x12",
        "3994x1887", "+", "(", ")", "-", "00", "2024-01-01", "T", "1:2", "::", "-----BEGIN ", "PRIVATE KEY-----", "eyJ", "sk-", "0x", "1Z", "C/", "ul", "é", "ß", "\u{200b}", "\n", "user", "lat", "1.5",
    ]), 0..14), glue in prop::sample::select(vec!["", " ", ", ", "\n", ".", "-"])) {
        let _ = redact(&Redactor::default(), &words.join(glue));
    }
}

#[test]
fn a_phileas_identifier_keeps_its_classification_and_its_validator() {
    let policy = |validator: &str, condition: &str| {
        let policy = json!({"identifiers": {"identifiers": [{
            "pattern": "[A-Z][0-9]{8}", "classification": "case-no", "validator": {"name": validator},
            "identifierFilterStrategies": [{"strategy": "REDACT", "redactionFormat": "<%t %l>", "condition": condition}],
        }]}});
        Redactor::new(Policy::parse(&policy.to_string()).expect("a policy"))
    };
    let told = |validator, condition, text| redact(&policy(validator, condition), text);
    assert_eq!(told("es-cif", "confidence > 0.1", "A58818501 A58818502"), "<id case-no> A58818502");
    assert_eq!(told("es-cif", "classification == \"case-no\"", "A58818501"), "<id case-no>");
    assert_eq!(told("es-cif", "classification == \"other\"", "A58818501"), "A58818501");
    assert_eq!(told("bic-structural", "confidence > 0.1", "A58818501"), "A58818501");
    assert_eq!(told("de-personalausweis", "confidence > 0.1", "L22000129"), "<id case-no>");
}

#[test]
fn ids_counters_and_versions_are_not_findings() {
    for text in [
        "batch 235-262-8742 was scrapped",
        "{\"lineItemId\": 634390250208, \"orderId\": 287903587722}",
        "timestamp 1823445196 offset 3350157944 id=250120603",
        "License: GPLv3+\nCopyright: 2017-2020 the authors",
        "needs dpkg since dpkg 1.18.19 or later",
        "00000380  99 7d 4d 89 ce 08 de 1c  7b f5 db 04 10 34 62 45  |.}M.|",
        "2014 Oracle\n           2019 the others",
        "package com.example.shop;",
    ] {
        assert_eq!(found(text), [], "{text:?}");
    }
    assert_eq!(found("Aadhaar 634390250208")[0].0, Kind::Aadhaar);
    assert_eq!(found("call 235-262-8742")[0].0, Kind::Phone);
    assert_eq!(found("driver license: D6101-40706")[0].0, Kind::DriversLicense);
}

#[test]
fn names_of_things_are_not_persons() {
    for text in [
        "The `Waker` is registered. Every waker is woken once.",
        "  miri:\n    name: Miri\n    runs-on: ubuntu-latest",
        "It follows from Moore's law and Newton's second law; the Laplace operator is linear.",
        "body { font: 16px/1.5 Georgia, serif; }",
        "\\fB(ALPHA)\\fR Delete an existing cluster.",
        "They aren't done. Aren't they? Google Cloud Storage holds the export.",
        "A Boeing 737 and an Airbus A320 stood there.",
        "Die Installation des Programms ist einfach. Laden Sie zunächst die aktuelle Fassung herunter und entpacken Sie \
         das Archiv in ein Verzeichnis Ihrer Wahl. Die Abteilung Einkauf verhandelt derzeit mit mehreren Lieferanten.",
    ] {
        assert_eq!(found(text), [], "{text:?}");
    }
}

#[test]
fn relatives_signatures_and_foreign_forms_are_found() {
    for (text, kind, value) in [
        ("They admitted my niece Destiny last week", Kind::Person, "Destiny"),
        ("See you there!\n\nCheers,\nGaz", Kind::Person, "Gaz"),
        ("nacido el 21 de diciembre de 1990", Kind::Date, "21 de diciembre de 1990"),
        (
            "Elle vit au 5 avenue Anatole France, 75007 Paris",
            Kind::StreetAddress,
            "5 avenue Anatole France, 75007 Paris",
        ),
        ("Invoice to Strandgaten 5, 5013 Bergen", Kind::StreetAddress, "Strandgaten 5, 5013 Bergen"),
        ("Tlf. 22 33 44 55", Kind::Phone, "22 33 44 55"),
        ("She spent two years at Billguard", Kind::Organization, "Billguard"),
        ("Three suppliers bid: Flightstats, Onstar and Nonprofitmetrics.", Kind::Organization, "Nonprofitmetrics"),
        ("The board of Rheinmetall met on Monday.", Kind::Organization, "Rheinmetall"),
        ("@Tomasz can you review this?", Kind::Person, "Tomasz"),
        ("Wie heißt er? Ich heiße Bärbel Schuster.", Kind::Person, "Bärbel Schuster"),
    ] {
        assert!(found(text).contains(&(kind, value.to_owned())), "{text:?}: {:?}", found(text));
    }
}

#[test]
fn text_of_one_repeated_marker_takes_linear_time() {
    let redactor = Redactor::default();
    for unit in ["://", "ab://c", "ab://u:p@", "com.", "www.", "-----BEGIN PRIVATE KEY-----!", "a@"] {
        let took = |bytes: usize| {
            let text = unit.repeat(bytes / unit.len());
            let begun = std::time::Instant::now();
            let _ = redactor.find(&text, &RedactionSession::one_way());
            begun.elapsed()
        };
        // Eight times the length: scanning the rest of the text at every mark would take 64 times as long.
        let (short, long) = (took(10_000).max(std::time::Duration::from_millis(20)), took(80_000));
        assert!(long < short * 40, "{unit:?}: {short:?}, {long:?}");
    }
}

#[test]
fn the_end_of_a_url_with_many_brackets_is_found_in_linear_time() {
    let took = |close: &str| {
        let text = format!("https://firm.io/a{} ", close.repeat(8000)).repeat(8);
        let begun = std::time::Instant::now();
        let _ = Redactor::default().find(&text, &RedactionSession::one_way());
        begun.elapsed()
    };
    let (plain, brackets) = (took("a").max(std::time::Duration::from_millis(20)), took(")"));
    assert!(brackets < plain * 40, "{plain:?}, {brackets:?}");
    for (text, url) in [
        ("(see https://firm.io/a_(b)).", "https://firm.io/a_(b)"),
        ("[https://firm.io/a]]", "https://firm.io/a"),
        ("https://firm.io/a(b)c)!", "https://firm.io/a(b)c"),
    ] {
        assert!(found(text).contains(&(Kind::Url, url.to_owned())), "{:?}", found(text));
    }
}

/// Texts of figures, software and science without personal data.
const FIGURES: &[&str] = &[
    // Tables and lists.
    "1 204   1 318   1 402   987   1 115",
    "South 415 302 884 661 702 118 903 554 771 020",
    "0.8147, 0.0975, 0.1576, 0.1419\n12.9706, 45.4854, 95.7167, 65.5741",
    "static const double C[] = { 12.345678, 98.765432, 0.123456, 45.678901 };",
    "{{10.9061, 20.2369}, {0.5384, 0.4786}}",
    "23.4567, 78.9012\n24.1190, 77.0031",
    "We set beta = 12.5664, 37.6991 and gamma = (45.2389, 113.0973).",
    "Counts by month: 0123 456 789, 1456 789 012, 2789 012 345.",
    "Fibonacci 233 377 610 987 1597 2584 4181 6765 10946",
    "Powers: 4096 4225 4356 4489 4624 4761 4900 5041 5184",
    "Bins 100-200-3000, 200-300-4000, 300-400-5000.",
    "The file has 200 300 4000 rows by design.",
    "mem 8388608 8192 4096, heap 214 748 3647, rss 331 204 8812",
    "N = 10 000 000 000 trials",
    "the number of samples is 4155550132 and the cell count 5551234567",
    "call stack 4155550132, text field 2125551234",
    // Versions.
    "## 4.18.2.1 (2023-05-12)",
    "- libfoo 2.34.0.7, openssl 1.1.1.23 and boost 1.82.0.45 are bundled.",
    "- Requires .NET 4.8.90.0 or later, SDK 7.100.203.12, agent 23.11.4.18.",
    "- Upgrade `bar` from 12.20.31.4 to 12.20.31.5 (#4821).",
    "- Drop support for 3.120.44.17.",
    "* fixed a crash in 4.17.9.200 when the index was 4294967295",
    "`@scope/pkg@14.120.33.8`, `pkg-5.104.77.2.tgz`, pkg==21.40.11.9, pkg>=21.40.11.7",
    "Assembly: 16.11.34.201\nFirmware 21.34.55.89, bootloader 30.41.52.63.",
    // Methods and laws.
    "We compare the Gauss-Seidel iteration with successive over-relaxation.",
    "By the Cauchy-Schwarz inequality it is bounded, and a Runge-Kutta integrator advances the state.",
    "Enzyme kinetics follow the Michaelis-Menten equation; Lineweaver-Burk plots give the constants.",
    "A Kolmogorov-Smirnov test rejects, Shapiro-Wilk does not.",
    "Convergence of Gauss-Seidel is linear; Gauss-Newton needs fewer steps, Levenberg-Marquardt more.",
    "Samples were drawn with Metropolis-Hastings. Knuth-Morris-Pratt takes linear time.",
    "the Navier-Stokes equations, a Crank-Nicolson scheme, Diffie-Hellman groups",
    "the Laplace approximation, Shannon entropy, Hilbert spaces and Monte Carlo estimates",
];
