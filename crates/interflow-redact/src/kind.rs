//! The kinds of findings: their names in policies, explanations and placeholders.

use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident, $text:literal, $label:literal, [$($alias:literal),* $(,)?];)*) => {
        /// The kind of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $name,)*
        }

        impl Kind {
            /// Every built-in kind.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name in policies and explanations.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The label with which a placeholder begins.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            const fn aliases(self) -> &'static [&'static str] {
                match self { $(Self::$name => &[$($alias),*],)* }
            }
        }
    };
}

kinds! {
    /// A person's name.
    Person, "person", "PERSON", ["name", "first-name", "surname", "physician-name", "pheye"];
    /// The title before a person's name: Mrs, Dr.
    Title, "title", "TITLE", ["prefix", "honorific"];
    /// A company, institution or other organisation.
    Organization, "organization", "ORG", ["org", "company", "hospital"];
    /// A town, region or country.
    Location, "location", "LOCATION", ["city", "county", "state", "country", "gpe", "place"];
    /// A nationality or a religion.
    Nationality, "nationality", "NATIONALITY", ["nrp"];
    /// A street address or a part of one.
    StreetAddress, "street-address", "ADDRESS", ["address"];
    /// A postal code.
    ZipCode, "zip-code", "ZIP", ["zip", "postcode", "postal-code", "uk-postcode", "ca-postal-code", "de-plz"];
    /// A calendar date, optionally with the time of day.
    Date, "date", "DATE", ["date-time", "birthdate"];
    /// A person's age.
    Age, "age", "AGE", [];
    /// An e-mail address.
    Email, "email-address", "EMAIL", ["email"];
    /// A telephone number.
    Phone, "phone-number", "PHONE", ["phone"];
    /// A separate telephone extension.
    PhoneExtension, "phone-number-extension", "EXTENSION", [];
    /// A payment card number.
    CreditCard, "credit-card", "CARD", ["card"];
    /// An international bank account number (ISO 13616).
    Iban, "iban-code", "IBAN", ["iban"];
    /// A bank identifier code (ISO 9362).
    Bic, "bic-code", "BIC", ["swift"];
    /// A bank account number.
    BankAccount, "bank-account", "ACCOUNT", ["us-bank-number"];
    /// A US bank routing number.
    BankRouting, "bank-routing-number", "ROUTING", ["aba-routing-number"];
    /// A US social security number.
    Ssn, "ssn", "SSN", ["us-ssn"];
    /// A US individual taxpayer number.
    Itin, "itin", "ITIN", ["us-itin"];
    /// A US employer number.
    Ein, "ein", "EIN", [];
    /// An IPv4 or IPv6 address.
    IpAddress, "ip-address", "IP", ["ip"];
    /// A hardware address.
    MacAddress, "mac-address", "MAC", ["mac"];
    /// A URL.
    Url, "url", "URL", [];
    /// A host name without a scheme.
    Domain, "domain", "DOMAIN", ["domain-name"];
    /// A vehicle identification number (ISO 3779).
    Vin, "vin", "VIN", [];
    /// A vehicle's number plate.
    LicensePlate, "license-plate", "PLATE",
        ["in-vehicle-registration", "uk-vehicle-registration", "de-kfz", "tr-license-plate", "ng-vehicle-registration", "za-license-plate"];
    /// A bitcoin address.
    Bitcoin, "bitcoin-address", "BITCOIN", ["btc"];
    /// An address on another chain.
    CryptoAddress, "crypto-address", "WALLET", ["crypto"];
    /// Coordinates.
    Gps, "gps-coordinates", "GPS", ["gps", "coordinates"];
    /// A parcel's tracking number.
    TrackingNumber, "tracking-number", "TRACKING", [];
    /// A passport number.
    Passport, "passport-number", "PASSPORT",
        ["us-passport", "uk-passport", "in-passport", "it-passport", "de-passport", "es-passport", "kr-passport", "ph-passport", "za-passport"];
    /// A driving licence number.
    DriversLicense, "drivers-license-number", "LICENSE",
        ["us-driver-license", "driver-license", "it-driver-license", "uk-driving-licence", "de-fuehrerschein", "kr-driver-license", "za-driver-license"];
    /// A medical record number.
    MedicalRecord, "medical-record-number", "MRN", ["mrn"];
    /// A US provider number.
    Npi, "npi", "NPI", ["us-npi"];
    /// A US drug registration.
    Dea, "dea", "DEA", ["medical-license"];
    /// A US Medicare beneficiary number.
    Mbi, "mbi", "MBI", ["us-mbi"];
    /// A user name.
    Username, "username", "USERNAME", [];
    /// An amount of money.
    Currency, "currency", "MONEY", [];
    /// A two-letter abbreviation of a US state.
    StateAbbreviation, "state-abbreviation", "STATE", [];
    /// Brazil, persons.
    Cpf, "cpf", "CPF", [];
    /// Brazil, companies.
    Cnpj, "cnpj", "CNPJ", [];
    /// France.
    Nir, "nir", "NIR", ["insee"];
    /// Spain, citizens.
    Dni, "dni", "DNI", ["es-nif"];
    /// Spain, foreigners.
    Nie, "nie", "NIE", ["es-nie"];
    /// Italy.
    CodiceFiscale, "codice-fiscale", "CF", ["it-fiscal-code"];
    /// Italy, companies.
    PartitaIva, "partita-iva", "PIVA", ["it-vat-code"];
    /// England's health service.
    Nhs, "nhs-number", "NHS", ["uk-nhs"];
    /// United Kingdom, national insurance.
    Nino, "nino", "NINO", ["uk-nino"];
    /// Canada.
    Sin, "sin", "SIN", ["ca-sin"];
    /// Australia, tax.
    Tfn, "tfn", "TFN", ["au-tfn"];
    /// Australia, business.
    Abn, "abn", "ABN", ["au-abn"];
    /// Australia, company.
    Acn, "acn", "ACN", ["au-acn"];
    /// Australia, Medicare.
    AuMedicare, "au-medicare", "MEDICARE", [];
    /// India, tax.
    InPan, "in-pan", "PAN", [];
    /// India, identity.
    Aadhaar, "aadhaar", "AADHAAR", ["in-aadhaar"];
    /// India, goods and services tax.
    Gstin, "in-gstin", "GSTIN", [];
    /// India, voter card.
    InVoter, "in-voter", "VOTER", [];
    /// Poland, persons.
    Pesel, "pesel", "PESEL", ["pl-pesel"];
    /// Poland, tax.
    Nip, "nip", "NIP", [];
    /// Sweden.
    Personnummer, "personnummer", "PERSONNUMMER", ["se-personnummer"];
    /// Finland.
    Hetu, "hetu", "HETU", ["fi-personal-identity-code"];
    /// Norway.
    Fodselsnummer, "fodselsnummer", "FNR", ["no-fodselsnummer"];
    /// Denmark.
    Cpr, "cpr", "CPR", ["dk-cpr"];
    /// Netherlands.
    Bsn, "bsn", "BSN", ["nl-bsn"];
    /// Belgium.
    BeNationalNumber, "be-national-number", "BENN", [];
    /// Germany, tax.
    SteuerId, "steuer-id", "STEUERID", ["de-tax-id"];
    /// Germany, identity card.
    Personalausweis, "personalausweis", "AUSWEIS", ["de-id-card"];
    /// Switzerland.
    Ahv, "ahv", "AHV", ["ch-ahv"];
    /// Portugal.
    PtNif, "pt-nif", "NIF", [];
    /// Ireland.
    Pps, "pps", "PPS", ["ie-pps"];
    /// South Korea.
    Rrn, "kr-rrn", "RRN", ["rrn"];
    /// Singapore.
    Nric, "nric", "NRIC", ["sg-nric-fin", "fin"];
    /// China.
    CnId, "cn-id", "CNID", [];
    /// Japan.
    MyNumber, "jp-my-number", "MYNUMBER", [];
    /// Thailand.
    ThId, "th-tnin", "THID", ["th-id"];
    /// South Africa.
    ZaId, "za-id", "ZAID", ["za-id-number"];
    /// Mexico, persons.
    Curp, "curp", "CURP", [];
    /// Mexico, tax.
    Rfc, "rfc", "RFC", [];
    /// Turkey.
    Tckn, "tckn", "TCKN", ["tr-national-id"];
    /// Israel.
    IlId, "il-id", "ILID", [];
    /// Bulgaria.
    Egn, "egn", "EGN", [];
    /// Romania.
    Cnp, "cnp", "CNP", [];
    /// Croatia.
    Oib, "oib", "OIB", [];
    /// Czechia and Slovakia.
    RodneCislo, "rodne-cislo", "RC", [];
    /// Estonia and Lithuania.
    Isikukood, "isikukood", "ISIKUKOOD", [];
    /// Chile.
    Rut, "rut", "RUT", [];
    /// Argentina.
    Cuit, "cuit", "CUIT", [];
    /// A tax number identified by its context.
    TaxNumber, "tax-number", "TAX", ["tin", "de-tax-number", "ph-tin", "za-income-tax-number"];
    /// A value-added tax number.
    VatNumber, "vat-number", "VAT", ["vat", "de-vat-id", "za-vat-number"];
    /// A company registration number.
    CompanyNumber, "company-number", "COMPANYNO",
        ["sg-uen", "kr-brn", "se-organisationsnummer", "de-handelsregister", "za-company-registration", "siren", "siret"];
    /// A health insurance number: member, claim, prescription, referral.
    HealthInsurance, "health-insurance-number", "HEALTHINS",
        ["us-health-insurance-member-id", "de-health-insurance", "us-claim-number", "us-prescription-number", "us-referral-number",
            "us-prior-authorization-number", "de-lanr", "de-bsnr"];
    /// A social insurance number outside the US.
    SocialInsurance, "social-insurance-number", "SVNR", ["de-social-security"];
    /// An identity number identified only by its context.
    NationalId, "national-id", "ID", ["it-identity-card", "ng-nin", "ph-umid", "kr-frn", "za-traffic-register-number"];
    /// A provider's API key.
    ApiKey, "api-key", "APIKEY", [];
    /// A cloud's credential.
    CloudCredential, "cloud-credential", "CREDENTIAL", ["aws-key"];
    /// A token of a service.
    Token, "token", "TOKEN", ["access-token"];
    /// A JSON web token (RFC 7519).
    Jwt, "jwt", "JWT", [];
    /// A private key.
    PrivateKey, "private-key", "PRIVATEKEY", [];
    /// A connection string that contains a password.
    ConnectionString, "connection-string", "CONNECTION", [];
    /// A password.
    Password, "password", "PASSWORD", [];
    /// A random-looking string where a secret is expected.
    Secret, "secret", "SECRET", ["high-entropy"];
    /// A term of the policy's lists.
    Custom, "custom-dictionary", "TERM", ["custom"];
    /// A custom pattern of the policy.
    Identifier, "id", "ID", ["identifier"];
    /// The text between two markers of the policy.
    Section, "section", "SECTION", [];
}

impl Kind {
    /// The kind with this name or one of its aliases; `_` equals `-`, and case is ignored.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase().replace(['_', ' '], "-");
        Self::ALL.iter().copied().find(|k| k.as_str() == name || k.aliases().contains(&name.as_str()))
    }

    /// Whether it is a machine's secret or a password, not personal data.
    pub const fn is_secret(self) -> bool {
        matches!(
            self,
            Self::ApiKey
                | Self::CloudCredential
                | Self::Token
                | Self::Jwt
                | Self::PrivateKey
                | Self::ConnectionString
                | Self::Password
                | Self::Secret
        )
    }

    const fn bit(self) -> u128 {
        1 << self as u8
    }
}

const _: () = assert!(Kind::ALL.len() <= 128, "a KindSet has 128 bits");

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct KindSet(u128);

impl KindSet {
    pub const NONE: Self = Self(0);

    pub fn all() -> Self {
        Kind::ALL.iter().copied().collect()
    }

    pub const fn has(self, kind: Kind) -> bool {
        self.0 & kind.bit() != 0
    }

    pub const fn insert(&mut self, kind: Kind) {
        self.0 |= kind.bit();
    }

    pub const fn remove(&mut self, kind: Kind) {
        self.0 &= !kind.bit();
    }

    /// Whether any of these is in the set.
    pub fn any(self, kinds: &[Kind]) -> bool {
        kinds.iter().any(|k| self.has(*k))
    }

    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.iter().copied().filter(move |k| self.has(*k))
    }
}

impl FromIterator<Kind> for KindSet {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        let mut set = Self::NONE;
        kinds.into_iter().for_each(|k| set.insert(k));
        set
    }
}

impl fmt::Debug for KindSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_names_aliases_and_labels_are_unambiguous() {
        let mut names = std::collections::HashMap::new();
        for kind in Kind::ALL {
            for name in kind.aliases().iter().chain([&kind.as_str()]) {
                if let Some(other) = names.insert(name.to_string(), *kind) {
                    assert_eq!(other, *kind, "{name} names two kinds");
                }
                assert_eq!(Kind::from_name(name), Some(*kind));
            }
            assert!(kind.label().bytes().all(|b| b.is_ascii_uppercase()), "{kind:?}");
        }
        assert_eq!(Kind::from_name("CREDIT_CARD"), Some(Kind::CreditCard));
        assert_eq!(Kind::from_name("nonsense"), None);
    }

    #[test]
    fn kind_set_contains_inserted_kinds() {
        let mut set: KindSet = [Kind::Email, Kind::Section].into_iter().collect();
        assert!(set.has(Kind::Email) && set.has(Kind::Section) && !set.has(Kind::Phone));
        set.remove(Kind::Email);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Kind::Section]);
        assert_eq!(KindSet::all().iter().count(), Kind::ALL.len());
    }
}
