//! Tests of teams and organisations in the keys file.

use jiff::Timestamp;

use super::super::key_file::{NewVirtualKey, add_key, parse_timestamp, rotate_key};
use super::super::{KeyRejection, ScopeRequest, ScopeViolation, VirtualKeyRing};
use super::*;

fn tags(list: &[(&str, &str)]) -> TagSet {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A file with an organisation, a team and a key, and the key's secret.
fn file() -> (String, String) {
    let mut text = String::new();
    let organisation = GroupChange { tags: Some(tags(&[("cost", "17"), ("env", "prod")])), ..GroupChange::default() };
    add_group(&mut text, GroupLevel::Organisation, "acme", organisation).unwrap();
    let team = GroupChange {
        organisation: Some(Some("acme".into())),
        models: Some(vec!["gpt-*".into()]),
        tags: Some(tags(&[("env", "test")])),
        limits: Some(Quota { money_per_month: Some(5.0), ..Quota::default() }),
        ..GroupChange::default()
    };
    add_group(&mut text, GroupLevel::Team, "search", team).unwrap();
    let new = NewVirtualKey {
        id: "ann".into(),
        team: Some("search".into()),
        tags: tags(&[("project", "x")]),
        ..NewVirtualKey::default()
    };
    let secret = add_key(&mut text, new, parse_timestamp("2026-01-01").unwrap()).unwrap();
    (text, secret.reveal().to_owned())
}

#[test]
fn a_key_inherits_tags_and_needs_the_consent_of_every_level() {
    let (mut text, secret) = file();
    let now = Timestamp::now();
    let key = VirtualKeyRing::parse(&text).unwrap().find(&secret, now).unwrap();
    assert_eq!(key.tags, tags(&[("cost", "17"), ("env", "test"), ("project", "x")]));
    assert!(key.has_limits() && key.limits.is_none() && key.restricts_models());
    let ask = |model| {
        key.allows(&ScopeRequest { provider: "p", model, path: "/" }).map_err(|(why, at)| (why, at.unwrap().level))
    };
    assert_eq!(ask(Some("gpt-5")), Ok(()));
    for model in [Some("claude"), None] {
        assert_eq!(ask(model), Err((ScopeViolation::Model, GroupLevel::Team)));
    }
    let past = parse_timestamp("2026-01-02").unwrap();
    for (level, id, change, says) in [
        (
            GroupLevel::Team,
            "search",
            GroupChange { disabled: Some(true), ..GroupChange::default() },
            "the team search of the key ann is disabled",
        ),
        (GroupLevel::Team, "search", GroupChange { disabled: Some(false), ..GroupChange::default() }, ""),
        (
            GroupLevel::Organisation,
            "acme",
            GroupChange { expires: Some(Some(past)), ..GroupChange::default() },
            "the organisation acme of the key ann has expired",
        ),
        (GroupLevel::Organisation, "acme", GroupChange { expires: Some(None), ..GroupChange::default() }, ""),
    ] {
        assert!(change_group(&mut text, level, id, change).unwrap());
        match VirtualKeyRing::parse(&text).unwrap().find(&secret, now) {
            Ok(_) => assert_eq!(says, ""),
            Err(e) => assert!(!says.is_empty() && e.to_string().contains(says), "{e}"),
        }
    }
    assert!(!change_group(&mut text, GroupLevel::Organisation, "search", GroupChange::default()).unwrap());
}

#[test]
fn groups_with_members_are_not_removed_and_unknown_ones_are_refused() {
    let (mut text, _) = file();
    let e = remove_group(&mut text, GroupLevel::Team, "search").unwrap_err().to_string();
    assert!(e.contains("the key `ann` belongs"), "{e}");
    let e = remove_group(&mut text, GroupLevel::Organisation, "acme").unwrap_err().to_string();
    assert!(e.contains("the team `search` belongs"), "{e}");
    add_group(&mut text, GroupLevel::Team, "spare", GroupChange::default()).unwrap();
    assert!(remove_group(&mut text, GroupLevel::Team, "spare").unwrap());
    assert!(!remove_group(&mut text, GroupLevel::Team, "spare").unwrap());
    for (more, says) in [
        ("[[team]]\nid = 'search'\n", "another team of this id"),
        ("[[team]]\nid = 'b'\norganisation = 'none'\n", "there is no [[organisation]] with the id `none`"),
        ("[[organisation]]\nid = 'b'\norganisation = 'acme'\n", "only teams"),
        ("[[team]]\nid = 'b'\nlimits = { concurrent = 0 }\n", "limits: concurrent"),
        ("[[team]]\nid = 'b'\ntags = { A = 'b' }\n", "tags: `A`"),
        (
            "[[key]]\nid = 'b'\nhash = 'sha256:0000000000000000000000000000000000000000000000000000000000000000'\nteam = 'none'\n",
            "there is no [[team]]",
        ),
    ] {
        let e = VirtualKeyRing::parse(&format!("{text}\n{more}")).unwrap_err().to_string();
        assert!(e.contains(says) && e.contains("line "), "{e}");
    }
}

#[test]
fn both_secrets_of_a_rotated_key_are_valid_until_the_overlap_ends() {
    let (mut text, first) = file();
    let (now, end, later) = ("2026-05-01", "2026-05-02", "2026-05-03");
    let [now, end, later] = [now, end, later].map(|at| parse_timestamp(at).unwrap());
    let second = rotate_key(&mut text, "ann", Some(end)).unwrap().unwrap();
    let ring = VirtualKeyRing::parse(&text).unwrap();
    assert_eq!(ring.find(&first, now).unwrap().previous_until, Some(end));
    assert!(ring.find(second.reveal(), now).is_ok());
    assert_eq!(ring.find(&first, later), Err(KeyRejection::Replaced("ann".into())));
    assert!(ring.find(second.reveal(), later).is_ok());
    let third = rotate_key(&mut text, "ann", Some(end)).unwrap().unwrap();
    let ring = VirtualKeyRing::parse(&text).unwrap();
    assert_eq!(ring.find(&first, now), Err(KeyRejection::Unknown), "only one earlier secret is kept");
    assert!(ring.find(second.reveal(), now).is_ok() && ring.find(third.reveal(), now).is_ok());
    rotate_key(&mut text, "ann", None).unwrap().unwrap();
    assert!(VirtualKeyRing::parse(&text).unwrap().find(third.reveal(), now).is_err(), "no overlap");
    assert!(!text.contains("previous"), "{text}");
}
