//! Findings determined by context: people, titles, ages, field keys; and identifiers of programs that are none.

use interflow_redact::{Kind, RedactionSession, Redactor};

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
