//! What people write of themselves and of others, in the forms of addresses, ages, dialogues and numbers.

use interflow_redact::{Kind, RedactionSession, Redactor};

fn found(text: &str) -> Vec<(Kind, String)> {
    let spans = Redactor::default().find(text, &RedactionSession::one_way());
    spans.iter().map(|f| (f.kind, text[f.start..f.end].to_owned())).collect()
}

#[track_caller]
fn assert_found(rows: &[(&str, Kind, &str)]) {
    for (text, kind, value) in rows {
        let all = found(text);
        assert!(all.iter().any(|(k, v)| k == kind && v.contains(value)), "{text:?}: {all:?}");
    }
}

#[track_caller]
fn assert_nothing(texts: &[&str]) {
    for text in texts {
        assert_eq!(found(text), [], "{text:?}");
    }
}

#[test]
fn addresses_are_found_by_corner_by_block_and_without_a_street_word() {
    use Kind::{Organization, Person, StreetAddress};
    assert_found(&[
        ("We meet at the corner of Fifth and Mainzer Lane at noon", StreetAddress, "Fifth and Mainzer Lane"),
        ("27 Bergvidda 5\n Apt. 12\n Lillehammer\n Norway", StreetAddress, "27 Bergvidda 5"),
        ("He lives at 1187 Bergvidda 5, Tromso", StreetAddress, "1187 Bergvidda 5"),
        (">Anna Lindholm\n>Quorvex\n>Anna Lindholm\n>228 Ringvej 144\n>Apt. 902", Organization, "Quorvex"),
        ("Zsolka Vrebek\nQuorvex\n228 Ringvej 144\nApt. 902", Person, "Zsolka Vrebek"),
    ]);
    assert_nothing(&[
        "Draw a circle around the corner of the box and the label.",
        "the corner of a window and its border",
    ]);
}

#[test]
fn ages_and_postal_codes_are_found_where_they_are_said_of_someone() {
    use Kind::{Age, ZipCode};
    assert_found(&[
        ("She wrote it when she was 17.", Age, "17"),
        ("I am 40, and live alone.", Age, "40"),
        ("My zip code is 880", ZipCode, "880"),
    ]);
    assert_nothing(&[
        "when it was 17.",
        "he was 5 minutes late",
        "the result is 40.",
        "The code is 880",
        "he is 40% faster",
    ]);
}

#[test]
fn people_are_found_by_what_only_people_do() {
    use Kind::{Location, Nationality, Organization, Person};
    assert_found(&[
        ("Vrebka: What a day.\nNicole: Remember me?\nJohn: Yes.", Person, "Vrebka"),
        ("\"I am glad to hear it,\" says Vrebko.", Person, "Vrebko"),
        ("Vrebka lives in a small house.", Person, "Vrebka"),
        ("Vrebka is from Norwood.", Person, "Vrebka"),
        ("Her maiden name is Key", Person, "Key"),
        ("The Princess arrived at Vrebkahaven this morning.", Location, "Vrebkahaven"),
        ("I moved here from the United Kingdom.", Location, "United Kingdom"),
        ("Quorvex is a design agency based in the north.", Organization, "Quorvex"),
        ("The address of Quorvex is unknown.", Organization, "Quorvex"),
        ("I am cambodian and my partner is from here", Nationality, "cambodian"),
        ("We are proud paraguayans", Nationality, "paraguayans"),
    ]);
    assert_nothing(&[
        "naive Bayes",
        "We use Bayes' for this.",
        "Selecting previously unselected package libpng16-16:amd64.",
        "Chrono is a library for dates.",
        "Bot: What's the name on the account?",
    ]);
}

#[test]
fn numbers_in_unusual_groups_are_found_only_as_what_they_are() {
    use Kind::{CreditCard, Email, Imei};
    assert_found(&[
        ("card 4111_1111_1111_1111 please", CreditCard, "4111_1111_1111_1111"),
        ("card 4111/1111/1111/1111 please", CreditCard, "4111/1111/1111/1111"),
        ("my card is 4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", CreditCard, "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"),
        ("IMEI: 490154203237518", Imei, "490154203237518"),
        ("the IMEI is 49-015420-323751-8", Imei, "49-015420-323751-8"),
        ("write to anna.berg=40nordmail.com today", Email, "anna.berg=40nordmail.com"),
    ]);
    assert_nothing(&[
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        "const LIMIT: u64 = 4111_1111;",
        "width=40px.main",
        "IMEI: 490154203237519",
    ]);
}
