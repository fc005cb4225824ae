//! Findings determined by context: people, titles, ages, field keys, encodings; and identifiers of programs and numbers
//! of things that are none.

use interflow_redact::{Kind, PlaceholderVault, Policy, RedactionSession, Redactor, VaultKey};

fn found(text: &str) -> Vec<(Kind, String)> {
    let spans = Redactor::default().find(text, &RedactionSession::one_way());
    spans.iter().map(|f| (f.kind, text[f.start..f.end].to_owned())).collect()
}

#[test]
fn titles_ages_and_people_are_detected_from_context() {
    for (text, kind, value) in [
        ("Please forward it to Mrs. Tremblay-Kaur.", Kind::Title, "Mrs."),
        ("Herr Zwingli kommt morgen.", Kind::Title, "Herr"),
        ("DR SMITH called", Kind::Title, "DR"),
        ("The baby is 8 months old.", Kind::Age, "8 months old"),
        ("Elle a 34 ans.", Kind::Age, "34 ans"),
        ("Tiene 25 años.", Kind::Age, "25 años"),
        ("Er ist 47 Jahre alt.", Kind::Age, "47 Jahre alt"),
        ("She turned 30 last week.", Kind::Age, "30"),
        ("They married in September 2003.", Kind::Date, "September 2003"),
        ("Jakobine, can you call me back?", Kind::Person, "Jakobine"),
        ("Duqyaha shouted at the driver.", Kind::Person, "Duqyaha"),
        ("It was Sumaya's kid who fell.", Kind::Person, "Sumaya"),
        ("Please remove my kid Mali from the will.", Kind::Person, "Mali"),
        ("My friend lives in PUNKAHARJU", Kind::Location, "PUNKAHARJU"),
        ("Mail goes to P.O. Box 4471.", Kind::StreetAddress, "P.O. Box 4471"),
        ("Meet me at 95 230 Wit Road, Bryanston", Kind::StreetAddress, "95 230 Wit Road, Bryanston"),
        (r#"{"lname": "Winter", "fname": "Hope"}"#, Kind::Person, "Winter"),
        (r#"{"last": "Bishop", "first": "Grace"}"#, Kind::Person, "Bishop"),
        (r#"{"emergency_contact": "Reed Lane"}"#, Kind::Person, "Reed Lane"),
        (r#"{"employer_name": "Blue Heron"}"#, Kind::Organization, "Blue Heron"),
        (r#"{"passport": "K4820193"}"#, Kind::Passport, "K4820193"),
        (r#"{"address": "12 The Hollies"}"#, Kind::StreetAddress, "12 The Hollies"),
    ] {
        assert!(found(text).contains(&(kind, value.to_owned())), "{text}: {:?}", found(text));
    }
    for text in [
        "Ask the doctor, the captain or the judge.",
        "The cache entry is 8 months valid.",
        "un contrat de 3 ans",
        "The dial turned 30 degrees.",
        "Retry, can you see the log?",
        r#"{"first": "A", "page": "Last"}"#,
        r#"{"last": "Monday"}"#,
        r#"{"address": "string"}"#,
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn software_identifiers_are_not_findings() {
    for text in [
        "See README.DOS for compilation instructions on MS-DOS and MS-Windows.",
        "It raises a ValueError or an OverflowException for BINFLOAT opcodes.",
        "The item is then in the PendingReview state.",
        "Link the Mach-O file with the macOS SDK.",
        "- Add `impl Connection for TokioIo`",
        "Not all functions and types work on these OSs.",
        "'\\u0621'    #  0x98 -> ARABIC LETTER HAMZA\n'\\u0160'   #  0xEB -> LATIN CAPITAL LETTER S WITH CARON",
        "there is no extern int variable named errno in this C library build",
        "The Ninja build tool reads build.ninja from CMake. Ninja then runs the compiler; tell Ninja which \
         library and which module to build with the Ninja generator.",
        "let net6: Ipv6Net = \"fd00::/24\".parse().unwrap(); // subnet 1 = 192.168.0.128/25",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
    // The same words are names in a text about people.
    for (text, value) in [
        ("My colleague Hamza called, his wife is ill.", "Hamza"),
        ("Ms Windsor lives next door.", "Windsor"),
        ("MS WINDSOR LIVES NEXT DOOR", "WINDSOR"),
    ] {
        assert!(found(text).contains(&(Kind::Person, value.to_owned())), "{text}: {:?}", found(text));
    }
    let text = "ping 192.168.0.128 from the router";
    assert_eq!(found(text), [(Kind::IpAddress, "192.168.0.128".to_owned())]);
}

#[test]
fn numbers_of_things_are_not_findings() {
    for text in [
        "P/N 532-549-8796  gasket set",
        "Drawing 373.517.4827 rev D, sheet 7 of 7",
        "Spare kit 0966 998 990 fits models 9893 to 3499",
        "{\"shard\": \"860-391-9960\", \"count\": 4}",
        "tests/ring.py::test_offsets[671-863-8009] PASSED",
        "Load 825-731-6262 kN on the beam",
        "ERROR for job 426296451, code 251-60-5763",
        "Grant 346-80-9986 paid for the beam time.",
        "771399  Tooling  debit 49 211 982  GL account 136089\n858850  Rent",
        "EAN 4003075811539  pipe clamp",
        "reads mapped to chr3:36628552-34085363",
        "PRIME = 1527743223; SEED = 584455769108973077",
        "ratings 1406 2172 2583 1548",
        "34 C, 1001 hPa\nStation 23087",
        "torque 2.7 Nm, stock 2103, bin 62-51-75",
        "dowel pin M10x3.22",
        "install librtmp1:amd64 2.4+20151223.1-2",
        "00000410: 5500 0000 1200 0000 0000 0000 0000 0000  U...............",
        "00004dc0: 0000 be01 0000 00e8 b4d4 ffff 31ff ba05  ............1...",
        "{\"coordinates\": [[[3.925709, -26.170687], [5.167874, -26.463371]]]}",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
    for (text, kind, value) in [
        ("Call me, 532-549-8796.", Kind::Phone, "532-549-8796"),
        ("office phone: 415-555-0132", Kind::Phone, "415-555-0132"),
        ("Her number is 251-60-5763", Kind::Ssn, "251-60-5763"),
        ("Transfer to account 136089421 please", Kind::BankAccount, "136089421"),
        ("my card 4003075811539", Kind::CreditCard, "4003075811539"),
        ("Aadhaar 2172 2583 1548", Kind::Aadhaar, "2172 2583 1548"),
        ("The pin 4711 opens the door, PIN: 8831", Kind::Password, "8831"),
        ("coordinates: 48.858370, 2.294481", Kind::Gps, "48.858370, 2.294481"),
    ] {
        assert!(found(text).contains(&(kind, value.to_owned())), "{text}: {:?}", found(text));
    }
}

#[test]
fn values_are_found_in_what_a_text_stands_for() {
    for (text, kind, value) in [
        ("to=anna.berg%40firm.com&x=1", Kind::Email, "anna.berg%40firm.com"),
        ("write to anna&#46;berg&#x40;firm.com", Kind::Email, "anna&#46;berg&#x40;firm.com"),
        (r#"log: {\"ssn\":\"123\u002d45\u002d6789\"}"#, Kind::Ssn, r"123\u002d45\u002d6789"),
        ("see YW5uYS5iZXJnQGZpcm0uY29t there", Kind::Email, "YW5uYS5iZXJnQGZpcm0uY29t"),
        // Percent-encoded base64 of a percent-encoded address.
        ("q=YW5uYS5iZXJnJTQwZmlybS5jb20%3D", Kind::Email, "YW5uYS5iZXJnJTQwZmlybS5jb20%3D"),
        ("write to anna.berg@\n> firm.com today", Kind::Email, "anna.berg@\n> firm.com"),
        ("IBAN DE89 3704 0044\n0532 0130 00", Kind::Iban, "DE89 3704 0044\n0532 0130 00"),
        ("my card is 4111 1111\n1111 1111, valid", Kind::CreditCard, "4111 1111\n1111 1111"),
    ] {
        assert!(found(text).contains(&(kind, value.to_owned())), "{text}: {:?}", found(text));
    }
    for text in ["100%25 of 3%", "x &lt; y &amp;&amp; z", "commit d41d8cd98f00b204e9800998ecf8427e", "a 1234\n5678 b"] {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn encoded_values_are_restored_as_they_were_written() {
    let policy = Policy::parse("always = [\"Quillon Astervane\"]").expect("a policy");
    let text = "a%40firm.com, YW5uYS5iZXJnQGZpcm0uY29t, Quillon\n  Astervane, Ｑｕｉｌｌｏｎ Ａｓｔｅｒｖａｎｅ, Qu\u{200b}illon Astervane";
    let vault = PlaceholderVault::new(&VaultKey::for_conversation(&[5; 32], b"test"));
    let mut session = RedactionSession::reversible(vault);
    let redacted = Redactor::new(policy).redact_text(text, &mut session).expect("text").output.expect("findings");
    for part in ["firm", "YW5u", "illon", "stervane", "Ａ"] {
        assert!(!redacted.contains(part), "{redacted}");
    }
    assert_eq!(session.vault().expect("a vault").restore(&redacted), text);
}
