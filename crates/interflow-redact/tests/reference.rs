//! The reference page of redaction, `docs/reference/redaction.md`, made from the table of entity types, the JSON Schema
//! of policies, and what the detectors report for an example of each type.

use std::fmt::Write as _;

use interflow_redact::{DEFAULT_CONFIDENCE, Kind, Policy, RedactionSession, Redactor};
use interflow_testkit::docs::{check_reference_page, check_schema};
use interflow_testkit::json_schema::{self, cell};
use serde_json::Value;

/// A text with a gap, and the value in it. In two parts where a secret scanner would report this file.
const EXAMPLES: &[(Kind, &str, &[&str])] = &[
    (Kind::Person, "My name is {}.", &["Jenny Gibson"]),
    (Kind::Title, "We met {} Anna Berg there.", &["Mrs."]),
    (Kind::Organization, "He works at {} in town", &["Brightmoor Technologies Inc"]),
    (Kind::Location, "She lives in {} now", &["Reykjavik"]),
    (Kind::Nationality, "She is a {} citizen.", &["Norwegian"]),
    (Kind::StreetAddress, "send it to {}.", &["123 Main Street, Springfield, IL 62704"]),
    (Kind::ZipCode, "ZIP code {}", &["90210"]),
    (Kind::Date, "born {} in", &["March 12, 1987"]),
    (Kind::Age, "a {} man", &["50 year old"]),
    (Kind::Email, "write to {}.", &["anna@firm.com"]),
    (Kind::Phone, "call {}", &["(212) 555-0143"]),
    (Kind::PhoneExtension, "dial {}", &["ext. 12"]),
    (Kind::CreditCard, "My card is {} thanks", &["4111 1111 1111 1111"]),
    (Kind::Iban, "IBAN {}", &["DE89 3704 0044 0532 0130 00"]),
    (Kind::Bic, "SWIFT code {}", &["DEUTDEFF500"]),
    (Kind::BankAccount, "bank account number {}", &["945456787654"]),
    (Kind::BankRouting, "ABA routing number {}", &["121000358"]),
    (Kind::Ssn, "her SSN is {}.", &["536-90-4399"]),
    (Kind::Itin, "ITIN {}", &["912-78-1234"]),
    (Kind::Ein, "our EIN is {}", &["91-1144442"]),
    (Kind::IpAddress, "host {} is down", &["203.0.113.77"]),
    (Kind::MacAddress, "mac {}", &["00:1B:44:11:3A:B7"]),
    (Kind::Imei, "IMEI {}", &["490154203237518"]),
    (Kind::Url, "see {}", &["https://www.acme-toys.biz/a?b=c"]),
    (Kind::Domain, "our domain is {}", &["acme-toys.biz"]),
    (Kind::Vin, "VIN {}", &["1M8GDM9AXKP042788"]),
    (Kind::LicensePlate, "registration plate {}", &["AB12 CDE"]),
    (Kind::Bitcoin, "send to {}", &["1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"]),
    (Kind::CryptoAddress, "ethereum {}", &["0x52908400098527886E0F7030069857D2E4169EE7"]),
    (Kind::Gps, "location {}", &["52.520008, 13.404954"]),
    (Kind::TrackingNumber, "parcel {}", &["1Z999AA10123456784"]),
    (Kind::Passport, "passport number {}", &["912803456"]),
    (Kind::DriversLicense, "driver license {}", &["H12234567"]),
    (Kind::MedicalRecord, "MRN: {}", &["4478213"]),
    (Kind::Npi, "NPI {}", &["1245319599"]),
    (Kind::Dea, "DEA number {}", &["AB1234563"]),
    (Kind::Mbi, "Medicare id {}", &["1EG4-TE5-MK73"]),
    (Kind::Username, "username: {}", &["jgibson42"]),
    (Kind::Currency, "paid {}", &["$1,234.50"]),
    (Kind::StateAbbreviation, "in {} 90210", &["CA"]),
    (Kind::Cpf, "CPF {}", &["529.982.247-25"]),
    (Kind::Cnpj, "CNPJ {}", &["11.444.777/0001-61"]),
    (Kind::Nir, "NIR {}", &["255081416802538"]),
    (Kind::Dni, "DNI {}", &["12345678Z"]),
    (Kind::Nie, "NIE {}", &["X9613851N"]),
    (Kind::CodiceFiscale, "codice fiscale {}", &["RSSMRA85T10A562S"]),
    (Kind::PartitaIva, "partita iva {}", &["01333550323"]),
    (Kind::Nhs, "NHS number {}", &["943 476 5919"]),
    (Kind::Nino, "National insurance number {}", &["AA123456B"]),
    (Kind::Sin, "SIN {}", &["130 692 544"]),
    (Kind::Tfn, "TFN {}", &["876 543 210"]),
    (Kind::Abn, "ABN {}", &["51 824 753 556"]),
    (Kind::Acn, "ACN {}", &["005 499 981"]),
    (Kind::AuMedicare, "Medicare {}", &["2123 45670 1"]),
    (Kind::InPan, "PAN {}", &["AAAPA1111R"]),
    (Kind::Aadhaar, "Aadhaar {}", &["2341 2341 2346"]),
    (Kind::Gstin, "GSTIN {}", &["27AAPFU0939F1ZV"]),
    (Kind::InVoter, "voter id {}", &["KSD1287349"]),
    (Kind::Pesel, "PESEL {}", &["02070803628"]),
    (Kind::Nip, "NIP {}", &["123-456-32-18"]),
    (Kind::Personnummer, "personnummer {}", &["811218-9876"]),
    (Kind::Hetu, "hetu {}", &["131052-308T"]),
    (Kind::Fodselsnummer, "fødselsnummer {}", &["150765 00565"]),
    (Kind::Cpr, "CPR {}", &["131052-4158"]),
    (Kind::Bsn, "BSN {}", &["123456782"]),
    (Kind::BeNationalNumber, "rijksregisternummer {}", &["85.07.30-033.28"]),
    (Kind::SteuerId, "Steuer-ID {}", &["86095742719"]),
    (Kind::Personalausweis, "Personalausweis {}", &["T220001293"]),
    (Kind::Ahv, "AHV {}", &["756.9217.0769.85"]),
    (Kind::PtNif, "NIF {}", &["123456789"]),
    (Kind::Pps, "PPS number {}", &["1234567FA"]),
    (Kind::Rrn, "RRN {}", &["960121-1234561"]),
    (Kind::Nric, "NRIC {}", &["S2740116C"]),
    (Kind::CnId, "resident identity card {}", &["11010519491231002X"]),
    (Kind::MyNumber, "My Number {}", &["1234 5678 9018"]),
    (Kind::ThId, "Thai citizen {}", &["1-1017-00230-70-8"]),
    (Kind::ZaId, "South African ID {}", &["8001015009087"]),
    (Kind::Curp, "CURP {}", &["BOXW310820HNERXN09"]),
    (Kind::Rfc, "RFC {}", &["VECJ880326XXX"]),
    (Kind::Tckn, "TC kimlik no {}", &["10000000146"]),
    (Kind::IlId, "Israeli id {}", &["123456782"]),
    (Kind::Egn, "EGN {}", &["7523169263"]),
    (Kind::Cnp, "CNP {}", &["1800101221144"]),
    (Kind::Oib, "OIB {}", &["33392005961"]),
    (Kind::RodneCislo, "rodné číslo {}", &["780123/3539"]),
    (Kind::Isikukood, "isikukood {}", &["37605030299"]),
    (Kind::Rut, "RUT {}", &["12.345.678-5"]),
    (Kind::Cuit, "CUIT {}", &["20-12345678-6"]),
    (Kind::TaxNumber, "Steuernummer {}", &["181/815/08155"]),
    (Kind::VatNumber, "USt-IdNr {}", &["DE136695976"]),
    (Kind::CompanyNumber, "SIREN {}", &["732 829 320"]),
    (Kind::HealthInsurance, "member ID: {}", &["XYZ123456789"]),
    (Kind::SocialInsurance, "Rentenversicherungsnummer {}", &["65170839J003"]),
    (Kind::NationalId, "carta d'identità {}", &["AA1234567"]),
    (Kind::ApiKey, "key {}", &["sk-ant-", "api03-Zx9kQ2mWv7Lp4Rt8Yb1Nc6Hd3Jf5Gs0A-aB"]),
    (Kind::CloudCredential, "{}", &["AKIA", "Q3EGRJ7ZP4W2MN5X"]),
    (Kind::Token, "{}", &["ghp_", "16C7e42F292c6912E7710c838347Ae178B4a"]),
    (Kind::Jwt, "{}", &["eyJhbGciOiJIUzI1NiJ9.", "eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"]),
    (
        Kind::PrivateKey,
        "{}",
        &[
            "-----BEGIN PRIVATE KEY-----",
            "\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n-----END PRIVATE KEY-----",
        ],
    ),
    (Kind::ConnectionString, "{}", &["postgres://app:", "s3cr3tPw@db.internal:5432/x"]),
    (Kind::Password, "password = \"{}\"", &["hunter2!x"]),
    (Kind::Secret, "\"client_secret\": \"{}\"", &["a8F3kL9q", "Wz2XcV7bN4mT"]),
];

/// Types that only a policy's own terms, patterns and sections produce.
const OF_THE_POLICY: [Kind; 3] = [Kind::Custom, Kind::Identifier, Kind::Section];

/// A policy that detects every type, whatever the confidence.
fn everything() -> Redactor {
    let names: Vec<String> = Kind::ALL.iter().map(|k| format!("{:?}", k.as_str())).collect();
    Redactor::new(Policy::from_toml(&format!("kinds = [{}]\nconfidence = 0", names.join(", "))).expect("a policy"))
}

/// The confidence with which the value is found in its text, as this type.
fn confidence(redactor: &Redactor, kind: Kind, text: &str, value: &str) -> Option<u8> {
    let whole = text.replace("{}", value);
    let found = redactor.find(&whole, &RedactionSession::one_way());
    let start = whole.find(value)?;
    // A detector may include what belongs to the value, such as quotes or the words around it.
    found.iter().find(|f| f.kind == kind && f.start <= start + 1 && f.end > start).map(|f| f.confidence)
}

/// Whether another digit, in any place, makes the value less likely: what check digits do, unless two digits have the same
/// remainder.
fn has_check_digits(redactor: &Redactor, kind: Kind, text: &str, value: &str) -> bool {
    let valid = confidence(redactor, kind, text, value).unwrap_or_default();
    let digits: Vec<usize> = (0..value.len()).filter(|i| value.as_bytes()[*i].is_ascii_digit()).collect();
    let is_less = |at: &usize| {
        let mut changed = value.as_bytes().to_vec();
        changed[*at] = b'0' + (changed[*at] - b'0' + 1) % 10;
        let changed = String::from_utf8(changed).expect("ASCII digits");
        confidence(redactor, kind, text, &changed).is_none_or(|c| c < valid)
    };
    !kind.is_secret() && digits.len() > 5 && digits.iter().all(is_less)
}

#[test]
fn the_reference_page_is_current() {
    check_schema("policy.json", &Policy::generate_schema());
    check_reference_page("redaction.md", &page());
}

fn page() -> String {
    let schema = Policy::generate_schema();
    let mut page = String::from(
        "# Redaction policies\n\n<!-- Generated from the code by `make docs`; do not edit. -->\n\n\
         A redaction policy, in TOML, says which entity types are detected and how a finding is replaced.\n\
         [The guide](../guides/redaction.md) shows how to use one, and [what redaction guarantees](../explanation/redaction-guarantees.md) \
         what it cannot do.\n\n\
         ```console\n$ cat > policy.toml <<'END'\n> name = \"support\"\n> strategy = { use = \"redact\", format = \"[%t]\" }\n\
         > never = [\"info@example.com\"]\n> [kind.credit-card]\n> strategy = { use = \"last-four\" }\n> END\n\
         $ printf 'Mail anna@firm.com or info@example.com, card 4111 1111 1111 1111.\\n' | interflow redact --policy policy.toml\n\
         Mail [email-address] or info@example.com, card **** **** **** 1111.\n```\n\n## Policy\n\n",
    );
    page.push_str(&json_schema::markdown_table(&schema, &schema, "key"));
    for (definition, intro) in [
        ("KindFile", "`[kind.NAME]`"),
        ("ConditionalFile", "`strategies` of `[kind.NAME]`"),
        ("TermsFile", "`[[terms]]`"),
        ("PatternFile", "`[[patterns]]`"),
        ("SectionFile", "`[[sections]]`"),
        ("CryptoFile", "`[crypto]`"),
        ("FpeFile", "`[fpe]`"),
    ] {
        let object = &schema["$defs"][definition];
        let table = json_schema::markdown_table(object, &schema, "key");
        let about = object["description"].as_str().unwrap_or_default().replace('\n', " ");
        let _ = write!(page, "\n### {intro}\n\n{about}\n\n{table}");
    }
    strategies(&mut page, &schema);
    validators(&mut page, &schema);
    kinds(&mut page);
    page
}

/// The values of an enumeration with their parameters.
fn strategies(page: &mut String, schema: &Value) {
    page.push_str(
        "\n## Strategies\n\n`use` names the strategy; its parameters are beside it: `{ use = \"mask\", character = \"#\" }`. \
         The default is `placeholder`.\n\n| `use` | replaces a finding by | parameter | type | meaning |\n|---|---|---|---|---|\n",
    );
    for form in schema["$defs"]["StrategyFile"]["oneOf"].as_array().expect("the schema lists the strategies") {
        let name = form["properties"]["use"]["const"].as_str().expect("a strategy has its name");
        let about = cell(form["description"].as_str().unwrap_or_default());
        let mut first = format!("| `{name}` | {about} |");
        let params: Vec<_> = json_schema::properties(form, schema).into_iter().filter(|p| p.name != "use").collect();
        for param in &params {
            let need = if param.required { " Required." } else { "" };
            let (type_name, doc) = (cell(&param.type_name), cell(&param.description));
            let _ = writeln!(page, "{first} `{}` | {type_name} | {doc}{need} |", param.name);
            first = "| | |".to_owned();
        }
        if params.is_empty() {
            let _ = writeln!(page, "{first} | | |");
        }
    }
}

fn validators(page: &mut String, schema: &Value) {
    page.push_str(
        "\n### Validators\n\n`validator` of a pattern: a finding counts only if its check digits are valid.\n\n",
    );
    page.push_str("| name | of |\n|---|---|\n");
    for form in schema["$defs"]["PatternValidator"]["oneOf"].as_array().expect("the schema lists the validators") {
        let (name, about) =
            (form["const"].as_str().unwrap_or_default(), form["description"].as_str().unwrap_or_default());
        let _ = writeln!(page, "| `{name}` | {} |", cell(about));
    }
}

fn kinds(page: &mut String) {
    let _ = write!(
        page,
        "\n## Entity types\n\nThe names for `kinds`, `except` and `[kind.NAME]`. In a name, case does not matter and `_` is `-`.\n\
         *Confidence* is what the detector reports for the example, in percent; a finding counts from the policy's `confidence` \
         (default {DEFAULT_CONFIDENCE}).\n\
         *Check digits* says whether the example with any other digit has less confidence; other types are recognised by format, \
         word lists and context, and the same value without its context may have less confidence or none.\n\
         Types marked *off* are detected only if the policy names them.\n\n\
         | type | other names | detects | example | confidence | check digits |\n|---|---|---|---|---|---|\n",
    );
    let (all, default) = (everything(), Redactor::default());
    let mut missing = Vec::new();
    for kind in Kind::ALL {
        let aliases: Vec<_> = kind.aliases().iter().map(|a| format!("`{a}`")).collect();
        let (name, doc, aliases) = (kind.as_str(), kind.doc(), aliases.join(", "));
        if OF_THE_POLICY.contains(kind) {
            let _ = writeln!(page, "| `{name}` | {aliases} | {doc} | | | |");
            continue;
        }
        let example = EXAMPLES.iter().find(|(of, ..)| of == kind);
        let Some((_, text, parts)) = example else {
            missing.push(format!("{name}: no example"));
            continue;
        };
        let value = parts.concat();
        let Some(percent) = confidence(&all, *kind, text, &value) else {
            let whole = text.replace("{}", &value);
            missing.push(format!("{name}: {whole}: {:?}", all.find(&whole, &RedactionSession::one_way())));
            continue;
        };
        let off = if confidence(&default, *kind, text, &value).is_none() { " *Off.*" } else { "" };
        let checked = if has_check_digits(&all, *kind, text, &value) { "yes" } else { "" };
        let shown = if parts.len() > 1 { format!("{}…", parts[0]) } else { value };
        let example = json_schema::code(&text.replace("{}", &shown));
        let _ = writeln!(page, "| `{name}` | {aliases} | {doc}{off} | {example} | {percent} | {checked} |");
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
