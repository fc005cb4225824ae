//! Values by their context, by the names of members and by the policy.

use super::*;

#[test]
fn figures_versions_and_methods_are_not_findings() {
    for text in FIGURES {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn ambiguous_numbers_are_found_if_the_context_names_their_kind() {
    for (text, kind, value) in [
        ("We met at 48.8584, 2.2945 at noon", Kind::Gps, "48.8584, 2.2945"),
        ("48.858370, 2.294481", Kind::Gps, "48.858370, 2.294481"),
        ("the cabin is at 48.8584° N, 2.2945° E, up the hill", Kind::Gps, "48.8584° N, 2.2945° E"),
        (r#"{"latitude": 48.8584, "n": 1}"#, Kind::Gps, "48.8584"),
        ("lng=-2.2945", Kind::Gps, "-2.2945"),
        ("my number is 4155550132", Kind::Phone, "4155550132"),
        ("Call 4155550132 after nine", Kind::Phone, "4155550132"),
        ("reach me on 212 555 0143", Kind::Phone, "212 555 0143"),
        ("Anna Berg, 212 555 0143", Kind::Phone, "212 555 0143"),
        ("Appelez-moi: 06 12 34 56 78", Kind::Phone, "06 12 34 56 78"),
        ("connection from 12.20.31.4 port 22", Kind::IpAddress, "12.20.31.4"),
        ("ssh root@12.20.31.4", Kind::IpAddress, "12.20.31.4"),
        ("12.20.31.4 - - [10/Oct/2023] \"GET / HTTP/1.1\" 200", Kind::IpAddress, "12.20.31.4"),
        (r#"{"remote_addr": "12.20.31.4"}"#, Kind::IpAddress, "12.20.31.4"),
        ("she used 84.12.133.7 last night", Kind::IpAddress, "84.12.133.7"),
        ("She joined Gauss-Seidel in May as an analyst", Kind::Organization, "Gauss-Seidel"),
        ("The office of Valentine-Murray is closed", Kind::Organization, "Valentine-Murray"),
    ] {
        assert!(found(text).contains(&(kind, value.to_owned())), "{text}: {:?}", found(text));
    }
}

#[test]
fn stopped_redaction_fails_and_leaves_the_cache_empty() {
    let memo = Arc::new(FindingCache::new(8).expect("random bytes"));
    let redactor = Redactor::default().with_cache(Arc::clone(&memo));
    let text = format!("write to anna.berg@firm.com {}", "and so on ".repeat(100));
    let stop = StopFlag::default();
    drop(stop.on_drop());
    let done = stop.run(|| redactor.redact_text(&text, &mut RedactionSession::one_way()));
    assert!(matches!(done, Err(RedactError::Stopped)), "{done:?}");
    assert!(memo.is_empty());
    // The next one on the same thread is not affected.
    let done = redactor.redact_text(&text, &mut RedactionSession::one_way()).expect("redacted");
    assert_eq!(done.spans.len(), 1);
}

#[test]
fn values_of_known_keys_are_found_in_any_format() {
    for (text, kind, value) in [
        (r#"{"last_name": "Berg"}"#, Kind::Person, "Berg"),
        (r#"{"lastName":"Young","x":1}"#, Kind::Person, "Young"),
        (r#"{"first_name": "Rose", "last_name": "Stone"}"#, Kind::Person, "Stone"),
        ("surname: Brown\nage: 3", Kind::Person, "Brown"),
        ("'nachname' => 'Klein',", Kind::Person, "Klein"),
        (r#"{"zip": "8000"}"#, Kind::ZipCode, "8000"),
        (r#"{"postal_code": "SW1A 1AA"}"#, Kind::ZipCode, "SW1A 1AA"),
        (r#"{"nationality": "Swiss"}"#, Kind::Nationality, "Swiss"),
        (r#"{"passport_no": "X1234567"}"#, Kind::Passport, "X1234567"),
        (r#"{"dateOfBirth": "03.04.71"}"#, Kind::Date, "03.04.71"),
        (r#"{"employer": "Lindgren Works"}"#, Kind::Organization, "Lindgren Works"),
        (r#"{"street_address": "Long Row 12"}"#, Kind::StreetAddress, "Long Row 12"),
    ] {
        assert!(found(text).contains(&(kind, value.to_owned())), "{text}: {:?}", found(text));
    }
    for text in [
        r#"{"last_name": "string", "zip": "string", "employer": "String"}"#,
        r#"{"zip": "archive.zip", "nationality": null}"#,
        "lastName: String,\n    firstName: Option<String>,",
        "surname = request.surname",
        "zip: ZipFile",
        "| Last name: | Last Name |",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn decomposed_letters_are_those_of_a_term() {
    let redactor = toml("always = ['Zörbiq']\nstrategy = { use = 'redact', format = '[x]' }");
    assert_eq!(redact(&redactor, "a Zo\u{308}rbiq, a zörbiq"), "a [x], a [x]");
}

#[test]
fn a_member_name_that_the_policy_names_is_redacted() {
    let body = r#"{"bluebird":1,"other":{"t_blue":2},"blue":3}"#;
    let policy = "always = ['bluebird']\nstrategy = { use = 'replace', with = 'X' }\n";
    assert_eq!(redact_json(&toml(policy), body), body.replace("bluebird", "X"));
    let pattern = format!("{policy}[[patterns]]\nname = 'p'\npattern = 't_[a-z]+'");
    assert_eq!(redact_json(&toml(&pattern), body), body.replace("bluebird", "X").replace("t_blue", "X"));
}

#[test]
fn a_phone_beside_a_mail_address_is_found_in_a_long_text() {
    let text = format!("{}write to x@y.com\nor 212 555 0143 sharp", "list a@b.com\n".repeat(100));
    assert!(found(&text).contains(&(Kind::Phone, "212 555 0143".to_owned())), "{:?}", found(&text).last());
}

#[test]
fn a_short_number_that_the_policy_names_is_redacted() {
    let body = br#"{"n":48213,"m":48214,"s":"48213"}"#;
    let out = toml("always = [\"48213\"]").redact_json(body, &mut RedactionSession::one_way()).expect("JSON");
    let out = String::from_utf8(out.output.expect("changed")).expect("UTF-8");
    assert!(!out.contains("48213") && out.contains("48214"), "{out}");
}
