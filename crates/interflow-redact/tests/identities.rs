//! Ids of persons, companies, cards and accounts: for each kind a text that contains one, and one with a wrong digit.

use interflow_redact::{Kind, RedactionSession, Redactor};

fn kinds(text: &str) -> Vec<(Kind, String)> {
    let spans = Redactor::default().find(text, &RedactionSession::one_way());
    spans.iter().map(|f| (f.kind, text[f.start..f.end].to_owned())).collect()
}

/// A sentence with a gap, the kind, a valid value, and one that must not be detected as it.
type Row = (&'static str, Kind, &'static str, &'static str);

fn check(rows: &[Row]) {
    let mut wrong = Vec::new();
    for (sentence, kind, valid, invalid) in rows {
        let text = sentence.replace("{}", valid);
        if !kinds(&text).contains(&(*kind, (*valid).to_owned())) {
            wrong.push(format!("not found: {text}: {:?}", kinds(&text)));
        }
        let text = sentence.replace("{}", invalid);
        if !invalid.is_empty() && kinds(&text).iter().any(|(k, v)| k == kind && v == invalid) {
            wrong.push(format!("taken: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn numbers_of_the_americas() {
    check(&[
        ("her SSN is {}.", Kind::Ssn, "536-90-4399", "000-12-3456"),
        ("social security number: {}", Kind::Ssn, "536904399", "666904399"),
        ("ITIN {}", Kind::Itin, "912-78-1234", "912-12-1234"),
        ("our EIN is {}", Kind::Ein, "91-1144442", "00-1144442"),
        ("ABA routing number {}", Kind::BankRouting, "121000358", "121000359"),
        ("bank account number {}", Kind::BankAccount, "945456787654", ""),
        ("passport number {}", Kind::Passport, "912803456", ""),
        ("US passport: {}", Kind::Passport, "A12803456", ""),
        ("driver license {}", Kind::DriversLicense, "H12234567", ""),
        ("my driver's license number is {}", Kind::DriversLicense, "a5631933", ""),
        ("my driver's licence is {}", Kind::DriversLicense, "A9012345", ""),
        ("Medicare id {}", Kind::Mbi, "1EG4-TE5-MK73", ""),
        ("Medicare {}", Kind::Mbi, "1EG4TE5MK73", "0EG4TE5MK73"),
        ("NPI {}", Kind::Npi, "1245319599", "1245319598"),
        ("DEA number {}", Kind::Dea, "AB1234563", "AB1234564"),
        ("member ID: {}", Kind::HealthInsurance, "XYZ123456789", ""),
        ("claim number {}", Kind::HealthInsurance, "CLM20231234", ""),
        ("prescription number {}", Kind::HealthInsurance, "RX1234567", ""),
        ("SIN {}", Kind::Sin, "130 692 544", "130 692 545"),
        ("Mail to Toronto, ON {}", Kind::ZipCode, "M5V 2T6", ""),
        ("CPF {}", Kind::Cpf, "111.444.777-35", "111.444.777-36"),
        ("CNPJ {}", Kind::Cnpj, "11.444.777/0001-61", "11.444.777/0001-62"),
        ("CURP {}", Kind::Curp, "BOXW310820HNERXN09", ""),
        ("RFC {}", Kind::Rfc, "VECJ880326XXX", ""),
        ("RUT {}", Kind::Rut, "7.654.321-6", "7.654.321-5"),
        ("CUIT {}", Kind::Cuit, "20-12345678-6", "20-12345678-7"),
    ]);
}

#[test]
fn numbers_of_western_europe() {
    check(&[
        ("NHS number {}", Kind::Nhs, "401-023-2137", "401-023-2138"),
        ("NHS {}", Kind::Nhs, "221 395 1837", "221 395 1838"),
        ("National insurance number {}", Kind::Nino, "AA123456B", "BG123456B"),
        ("NI number: {}", Kind::Nino, "AA 12 34 56 B", ""),
        ("UK driving licence {}", Kind::DriversLicense, "MORGA657054SM9IJ", ""),
        ("UK passport {}", Kind::Passport, "AB1234567", ""),
        ("registration plate {}", Kind::LicensePlate, "AB12 CDE", ""),
        ("London {}", Kind::ZipCode, "SW1A 1AA", ""),
        ("NIF {}", Kind::Dni, "55555555K", "55555555A"),
        ("DNI {}", Kind::Dni, "11111111-H", "11111111-A"),
        ("NIE {}", Kind::Nie, "X9613851N", "X9613851M"),
        ("NIE {}", Kind::Nie, "Z8078221M", "Z8078221N"),
        ("codice fiscale {}", Kind::CodiceFiscale, "AAAAAA00B11C333Y", "AAAAAA00B11C333N"),
        ("partita iva {}", Kind::PartitaIva, "01333550323", "01333550322"),
        ("patente {}", Kind::DriversLicense, "AA0123456B", ""),
        ("carta d'identità {}", Kind::NationalId, "AA1234567", ""),
        ("passaporto {}", Kind::Passport, "AA1234567", ""),
        ("numéro de sécurité sociale {}", Kind::Nir, "2 55 08 14 168 025 38", "2 55 08 14 168 025 39"),
        ("NIR {}", Kind::Nir, "255081416802538", "255081416802539"),
        ("SIREN {}", Kind::CompanyNumber, "732 829 320", "732 829 321"),
        ("Steuer-ID {}", Kind::SteuerId, "86095742719", "86095742718"),
        ("Steuernummer {}", Kind::TaxNumber, "181/815/08155", ""),
        ("USt-IdNr {}", Kind::VatNumber, "DE136695976", ""),
        ("Personalausweis {}", Kind::Personalausweis, "T220001293", "T220001294"),
        ("Reisepass {}", Kind::Passport, "C01X00T47", ""),
        ("Rentenversicherungsnummer {}", Kind::SocialInsurance, "65170839J003", ""),
        ("Rentenversicherungsnummer {}", Kind::SocialInsurance, "65 170839 J 003", ""),
        ("Krankenversicherung {}", Kind::HealthInsurance, "A123456780", ""),
        ("Kennzeichen {}", Kind::LicensePlate, "B-AB 1234", ""),
        ("Handelsregister HRB {}", Kind::CompanyNumber, "12345", ""),
        ("BSN {}", Kind::Bsn, "123456782", "123456783"),
        ("rijksregisternummer {}", Kind::BeNationalNumber, "85.07.30-033.28", "85.07.30-033.29"),
        ("AHV {}", Kind::Ahv, "756.9217.0769.85", "756.9217.0769.86"),
        ("NIF {}", Kind::PtNif, "123456789", "123456788"),
        ("PPS number {}", Kind::Pps, "1234567FA", "1234567GA"),
    ]);
}

#[test]
fn numbers_of_northern_and_eastern_europe() {
    check(&[
        ("personnummer {}", Kind::Personnummer, "811218-9876", "811218-9875"),
        ("personnummer {}", Kind::Personnummer, "19811218-9876", "19811218-9875"),
        ("organisationsnummer {}", Kind::CompanyNumber, "556703-7485", "556703-7486"),
        ("fødselsnummer {}", Kind::Fodselsnummer, "150765 00565", "150765 00566"),
        ("CPR {}", Kind::Cpr, "131052-4158", "991352-4158"),
        ("hetu {}", Kind::Hetu, "131052-308T", "131052-308U"),
        ("hetu {}", Kind::Hetu, "010594A9032", "010594A9033"),
        ("isikukood {}", Kind::Isikukood, "37605030299", "37605030298"),
        ("PESEL {}", Kind::Pesel, "02070803628", "02070803627"),
        ("NIP {}", Kind::Nip, "123-456-32-18", "123-456-32-19"),
        ("rodné číslo {}", Kind::RodneCislo, "780123/3539", "780123/3541"),
        ("CNP {}", Kind::Cnp, "1800101221144", "1800101221145"),
        ("EGN {}", Kind::Egn, "7523169263", "7523169264"),
        ("OIB {}", Kind::Oib, "33392005961", "33392005962"),
        ("TC kimlik no {}", Kind::Tckn, "10000000146", "10000000147"),
        ("plaka {}", Kind::LicensePlate, "34 ABC 123", ""),
    ]);
}

#[test]
fn numbers_of_asia_africa_and_the_pacific() {
    check(&[
        ("ABN {}", Kind::Abn, "51 824 753 556", "51 824 753 557"),
        ("ACN {}", Kind::Acn, "005 499 981", "005 499 982"),
        ("TFN {}", Kind::Tfn, "876 543 210", "876 543 211"),
        ("Medicare {}", Kind::AuMedicare, "2123 45670 1", "2123 45671 1"),
        ("Aadhaar {}", Kind::Aadhaar, "2341 2341 2346", "2341 2341 2347"),
        ("PAN {}", Kind::InPan, "AAAPA1111R", "AAAXA1111R"),
        ("voter id {}", Kind::InVoter, "KSD1287349", ""),
        ("Indian passport {}", Kind::Passport, "A3456781", ""),
        ("vehicle registration {}", Kind::LicensePlate, "MH12AB1234", ""),
        ("GSTIN {}", Kind::Gstin, "27AAPFU0939F1ZV", ""),
        ("NRIC {}", Kind::Nric, "S2740116C", "S2740116D"),
        ("UEN {}", Kind::CompanyNumber, "53125226D", ""),
        ("UEN {}", Kind::CompanyNumber, "T08LL1234A", ""),
        ("RRN {}", Kind::Rrn, "960121-1234561", "960121-1234567"),
        ("business registration number (BRN) {}", Kind::CompanyNumber, "124-81-00998", "124-81-00997"),
        ("Korean driver license {}", Kind::DriversLicense, "11-22-333333-44", ""),
        ("Korean passport {}", Kind::Passport, "M12345678", ""),
        ("resident identity card {}", Kind::CnId, "11010519491231002X", "110105194912310021"),
        ("My Number {}", Kind::MyNumber, "1234 5678 9018", "1234 5678 9017"),
        ("Thai citizen {}", Kind::ThId, "1-1017-00230-70-8", "1-1017-00230-70-9"),
        ("TIN {}", Kind::TaxNumber, "123-456-789-000", ""),
        ("UMID {}", Kind::NationalId, "0111-2345678-9", ""),
        ("NIN {}", Kind::NationalId, "12345678901", ""),
        ("plate number {}", Kind::LicensePlate, "ABC-123DE", ""),
        ("South African ID {}", Kind::ZaId, "8001015009087", "8001015009088"),
        ("company registration {}", Kind::CompanyNumber, "2015/123456/07", ""),
        ("Israeli id {}", Kind::IlId, "123456782", "123456783"),
    ]);
}

#[test]
fn cards_accounts_and_coins() {
    check(&[
        ("card {}", Kind::CreditCard, "4012888888881881", "4012888888881882"),
        ("card {}", Kind::CreditCard, "378282246310005", "378282246310006"),
        ("card {}", Kind::CreditCard, "371449635398431", ""),
        ("card {}", Kind::CreditCard, "5555 5555 5555 4444", "5555 5555 5555 4445"),
        ("card {}", Kind::CreditCard, "2223003122003222", ""),
        ("card {}", Kind::CreditCard, "6011-0009-9013-9424", ""),
        ("card {}", Kind::CreditCard, "30569309025904", ""),
        ("card {}", Kind::CreditCard, "3530111333300000", ""),
        ("card {}", Kind::CreditCard, "6250941006528599", ""),
        ("card {}", Kind::CreditCard, "6759649826438453", ""),
        ("card {}", Kind::CreditCard, "4222222222222", ""),
        ("pay to {}", Kind::Iban, "AL47212110090000000235698741", "AL47212110090000000235698742"),
        ("pay to {}", Kind::Iban, "AD12 0001 2030 2003 5910 0100", ""),
        ("pay to {}", Kind::Iban, "AT611904300234573201", ""),
        ("pay to {}", Kind::Iban, "AZ21NABZ00000000137010001944", ""),
        ("pay to {}", Kind::Iban, "BE68 5390 0754 7034", ""),
        ("pay to {}", Kind::Iban, "BR97 0036 0305 0000 1000 9795 493P 1", ""),
        ("pay to {}", Kind::Iban, "CH93 0076 2011 6238 5295 7", ""),
        ("pay to {}", Kind::Iban, "CR05015202001026284066", ""),
        ("pay to {}", Kind::Iban, "GB33BUKB20201555555555", "GB33BUKB20201555555556"),
        ("pay to {}", Kind::Iban, "IE29AIBK93115212345678", ""),
        ("pay to {}", Kind::Iban, "MT84MALT011000012345MTLCAST001S", ""),
        ("pay to {}", Kind::Iban, "NO93 8601 1117 947", ""),
        ("pay to {}", Kind::Iban, "TR33 0006 1005 1978 6457 8413 26", ""),
        ("pay to {}", Kind::Iban, "LC55HEMM000100010012001200023015", ""),
        ("SWIFT code {}", Kind::Bic, "DEUTDEFF500", ""),
        ("send to {}", Kind::Bitcoin, "16Yeky6GMjeNkAiNcBY7ZhrLoMSgg1BoyZ", "16Yeky6GMjeNkAiNcBY7ZhrLoMSgg1BoyY"),
        ("send to {}", Kind::Bitcoin, "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy", ""),
        (
            "send to {}",
            Kind::Bitcoin,
            "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq",
            "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdx",
        ),
        ("ethereum {}", Kind::CryptoAddress, "0x52908400098527886E0F7030069857D2E4169EE7", ""),
        ("VIN {}", Kind::Vin, "1HGCM82633A004352", ""),
        ("VIN {}", Kind::Vin, "1M8GDM9AXKP042788", ""),
        ("parcel {}", Kind::TrackingNumber, "1Z999AA10123456784", ""),
        ("MRN: {}", Kind::MedicalRecord, "4478213", ""),
        ("mac {}", Kind::MacAddress, "58-d0-ae-4d-a6-bb", ""),
    ]);
}

#[test]
fn every_registered_iban_country_has_its_length() {
    for (land, bban) in [
        ("AE", "0331234567890123456"),
        ("BG", "BNBG96611020345678"),
        ("BH", "BMAG00001299123456"),
        ("BY", "NBRB3600900000002Z00AB00"),
        ("CY", "002001280000001200527600"),
        ("CZ", "08000000192000145399"),
        ("DE", "370400440532013000"),
        ("DK", "00400440116243"),
        ("DO", "BAGR00000001212453611324"),
        ("EE", "2200221020145685"),
        ("EG", "0019000500000000263180002"),
        ("ES", "21000418450200051332"),
        ("FI", "12345600000785"),
        ("FO", "64600001631634"),
        ("FR", "20041010050500013M02606"),
        ("GE", "NB0000000101904917"),
        ("GI", "NWBK000000007099453"),
        ("GL", "64710001000206"),
        ("GR", "01101250000000012300695"),
        ("GT", "TRAJ01020000001210029690"),
        ("HR", "10010051863000160"),
        ("HU", "117730161111101800000000"),
        ("IL", "0108000000099999999"),
        ("IQ", "NBIQ850123456789012"),
        ("IS", "0159260076545510730339"),
        ("IT", "X0542811101000000123456"),
        ("JO", "CBJO0010000000000131000302"),
        ("KW", "CBKU0000000000001234560101"),
        ("KZ", "125KZT5004100100"),
        ("LB", "099900000001001901229114"),
        ("LI", "088100002324013AA"),
        ("LT", "1000011101001000"),
        ("LU", "0019400644750000"),
        ("LV", "BANK0000435195001"),
        ("MC", "11222000010123456789030"),
        ("MD", "AG000225100013104168"),
        ("ME", "505000012345678951"),
        ("MK", "250120000058984"),
        ("MR", "00020001010000123456753"),
        ("MU", "BOMM0101101030300200000MUR"),
        ("NL", "ABNA0417164300"),
        ("PK", "SCBL0000001123456702"),
        ("PL", "109010140000071219812874"),
        ("PS", "PALS000000000400123456702"),
        ("PT", "000201231234567890154"),
        ("QA", "DOHB00001234567890ABCDEFG"),
        ("RO", "AAAA1B31007593840000"),
        ("RS", "260005601001611379"),
        ("SA", "80000000608010167519"),
        ("SC", "SSCB11010000000000001497USD"),
        ("SE", "50000000058398257466"),
        ("SI", "263300012039086"),
        ("SK", "12000000198742637541"),
        ("SM", "U0322509800000000270100"),
        ("ST", "000100010051845310112"),
        ("SV", "CENR00000000000000700025"),
        ("TL", "0080012345678910157"),
        ("TN", "10006035183598478831"),
        ("UA", "3223130000026007233566001"),
        ("VA", "001123000012345678"),
        ("VG", "VPVG0000012345678901"),
        ("XK", "1212012345678906"),
    ] {
        let number = |text: &str| {
            text.bytes().fold(0u32, |n, b| match b {
                b'0'..=b'9' => (n * 10 + u32::from(b - b'0')) % 97,
                _ => (n * 100 + u32::from(b - b'A') + 10) % 97,
            })
        };
        let good = format!("{land}{:02}{bban}", 98 - number(&format!("{bban}{land}00")));
        let text = format!("to {good} please");
        assert!(kinds(&text).contains(&(Kind::Iban, good.clone())), "{text}: {:?}", kinds(&text));
        let bad = format!("to {good}7 please");
        assert!(!kinds(&bad).iter().any(|(k, _)| *k == Kind::Iban), "{bad}");
    }
}

#[test]
fn presidio_and_phileas_entity_names_are_known() {
    for name in [
        "ABA_ROUTING_NUMBER",
        "AU_ABN",
        "AU_ACN",
        "AU_MEDICARE",
        "AU_TFN",
        "CA_POSTAL_CODE",
        "CA_SIN",
        "CREDIT_CARD",
        "CRYPTO",
        "DATE_TIME",
        "DE_FUEHRERSCHEIN",
        "DE_HANDELSREGISTER",
        "DE_HEALTH_INSURANCE",
        "DE_ID_CARD",
        "DE_KFZ",
        "DE_PASSPORT",
        "DE_PLZ",
        "DE_SOCIAL_SECURITY",
        "DE_TAX_ID",
        "DE_TAX_NUMBER",
        "DE_VAT_ID",
        "EMAIL_ADDRESS",
        "ES_NIE",
        "ES_NIF",
        "ES_PASSPORT",
        "FI_PERSONAL_IDENTITY_CODE",
        "IBAN_CODE",
        "IN_AADHAAR",
        "IN_GSTIN",
        "IN_PAN",
        "IN_PASSPORT",
        "IN_VEHICLE_REGISTRATION",
        "IN_VOTER",
        "IP_ADDRESS",
        "IT_DRIVER_LICENSE",
        "IT_FISCAL_CODE",
        "IT_IDENTITY_CARD",
        "IT_PASSPORT",
        "IT_VAT_CODE",
        "KR_BRN",
        "KR_DRIVER_LICENSE",
        "KR_FRN",
        "KR_PASSPORT",
        "KR_RRN",
        "LOCATION",
        "MAC_ADDRESS",
        "MEDICAL_LICENSE",
        "NG_NIN",
        "NRP",
        "NG_VEHICLE_REGISTRATION",
        "ORGANIZATION",
        "PERSON",
        "PHONE_NUMBER",
        "PH_PASSPORT",
        "PH_TIN",
        "PH_UMID",
        "PL_PESEL",
        "SE_ORGANISATIONSNUMMER",
        "SE_PERSONNUMMER",
        "SG_NRIC_FIN",
        "SG_UEN",
        "TH_TNIN",
        "TR_LICENSE_PLATE",
        "TR_NATIONAL_ID",
        "UK_DRIVING_LICENCE",
        "UK_NHS",
        "UK_NINO",
        "UK_PASSPORT",
        "UK_POSTCODE",
        "UK_VEHICLE_REGISTRATION",
        "URL",
        "US_BANK_NUMBER",
        "US_DRIVER_LICENSE",
        "US_ITIN",
        "US_MBI",
        "US_NPI",
        "US_PASSPORT",
        "US_SSN",
        "ZA_COMPANY_REGISTRATION",
        "ZA_ID_NUMBER",
        "ZA_LICENSE_PLATE",
        "ZA_PASSPORT",
        "age",
        "bank-routing-number",
        "bitcoin-address",
        "city",
        "county",
        "state",
        "hospital",
        "first-name",
        "surname",
        "credit-card",
        "currency",
        "date",
        "custom-dictionary",
        "drivers-license-number",
        "ein",
        "email-address",
        "iban-code",
        "id",
        "ip-address",
        "mac-address",
        "passport-number",
        "person",
        "pheye",
        "phone-number",
        "phone-number-extension",
        "physician-name",
        "section",
        "ssn",
        "state-abbreviation",
        "street-address",
        "tracking-number",
        "url",
        "vin",
        "zip-code",
    ] {
        assert!(Kind::from_name(name).is_some(), "{name}");
    }
}
