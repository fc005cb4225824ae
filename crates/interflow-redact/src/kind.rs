//! The kinds of findings: their names in policies, explanations and placeholders.

use std::fmt;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident, $text:literal, $label:literal, [$($alias:literal),* $(,)?];)*) => {
        /// The kind of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[doc = $doc])+ $name,)*
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

            /// Its other names, such as those of Phileas and Presidio.
            pub const fn aliases(self) -> &'static [&'static str] {
                match self { $(Self::$name => &[$($alias),*],)* }
            }

            /// What it is, as a phrase with a full stop.
            pub fn doc(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+),)* }.trim()
            }
        }
    };
}

kinds! {
    /// A person's name, whole or in part.
    Person, "person", "PERSON", ["name", "first-name", "surname", "physician-name", "pheye"];
    /// The title before a person's name: Mrs, Dr.
    Title, "title", "TITLE", ["prefix", "honorific"];
    /// A company, an institution or another organisation, by name.
    Organization, "organization", "ORG", ["org", "company", "hospital"];
    /// A town, a region or a country, by name.
    Location, "location", "LOCATION", ["city", "county", "state", "country", "gpe", "place"];
    /// A nationality or a religious affiliation.
    Nationality, "nationality", "NATIONALITY", ["nrp"];
    /// A street address or a part of one.
    StreetAddress, "street-address", "ADDRESS", ["address"];
    /// A postal code in the format of its country.
    ZipCode, "zip-code", "ZIP", ["zip", "postcode", "postal-code", "uk-postcode", "ca-postal-code", "de-plz"];
    /// A calendar date, optionally with the time of day.
    Date, "date", "DATE", ["date-time", "birthdate"];
    /// A person's age.
    Age, "age", "AGE", [];
    /// An e-mail address (RFC 5322).
    Email, "email-address", "EMAIL", ["email"];
    /// A telephone number, with its extension if there is one.
    Phone, "phone-number", "PHONE", ["phone"];
    /// A telephone extension on its own.
    PhoneExtension, "phone-number-extension", "EXTENSION", [];
    /// A payment card number (ISO/IEC 7812), with a Luhn check digit.
    CreditCard, "credit-card", "CARD", ["card"];
    /// An international bank account number (ISO 13616).
    Iban, "iban-code", "IBAN", ["iban"];
    /// A bank identifier code (ISO 9362).
    Bic, "bic-code", "BIC", ["swift"];
    /// A bank account number of a national format, identified by its context.
    BankAccount, "bank-account", "ACCOUNT", ["us-bank-number"];
    /// A US bank routing number (ABA): nine digits with a weighted checksum.
    BankRouting, "bank-routing-number", "ROUTING", ["aba-routing-number"];
    /// A US social security number.
    Ssn, "ssn", "SSN", ["us-ssn"];
    /// A US individual taxpayer identification number, which begins with 9.
    Itin, "itin", "ITIN", ["us-itin"];
    /// A US employer identification number.
    Ein, "ein", "EIN", [];
    /// An IPv4 or IPv6 address.
    IpAddress, "ip-address", "IP", ["ip"];
    /// A hardware (MAC) address of 48 bits.
    MacAddress, "mac-address", "MAC", ["mac"];
    /// An equipment identity of a mobile phone (IMEI), with a Luhn check digit, identified by its context.
    Imei, "imei", "IMEI", [];
    /// A URL with its scheme.
    Url, "url", "URL", [];
    /// A host name without a scheme.
    Domain, "domain", "DOMAIN", ["domain-name"];
    /// A vehicle identification number (ISO 3779).
    Vin, "vin", "VIN", [];
    /// The number plate of a vehicle.
    LicensePlate, "license-plate", "PLATE",
        ["in-vehicle-registration", "uk-vehicle-registration", "de-kfz", "tr-license-plate", "ng-vehicle-registration", "za-license-plate"];
    /// A bitcoin address in base58check or bech32.
    Bitcoin, "bitcoin-address", "BITCOIN", ["btc"];
    /// An address on another blockchain.
    CryptoAddress, "crypto-address", "WALLET", ["crypto"];
    /// Geographic coordinates.
    Gps, "gps-coordinates", "GPS", ["gps", "coordinates"];
    /// A parcel's tracking number.
    TrackingNumber, "tracking-number", "TRACKING", [];
    /// A passport number, identified by its context.
    Passport, "passport-number", "PASSPORT",
        ["us-passport", "uk-passport", "in-passport", "it-passport", "de-passport", "es-passport", "kr-passport", "ph-passport", "za-passport"];
    /// The number of a driving licence.
    DriversLicense, "drivers-license-number", "LICENSE",
        ["us-driver-license", "driver-license", "it-driver-license", "uk-driving-licence", "de-fuehrerschein", "kr-driver-license", "za-driver-license"];
    /// The number of a medical record, identified by its context.
    MedicalRecord, "medical-record-number", "MRN", ["mrn"];
    /// A US national provider identifier of a health care provider.
    Npi, "npi", "NPI", ["us-npi"];
    /// A registration with the US Drug Enforcement Administration.
    Dea, "dea", "DEA", ["medical-license"];
    /// A US Medicare beneficiary identifier.
    Mbi, "mbi", "MBI", ["us-mbi"];
    /// A user name, in a path or after its label.
    Username, "username", "USERNAME", [];
    /// An amount of money with its currency.
    Currency, "currency", "MONEY", [];
    /// A two-letter abbreviation of a US state.
    StateAbbreviation, "state-abbreviation", "STATE", [];
    /// Brazilian taxpayer number of persons: Cadastro de Pessoas Físicas.
    Cpf, "cpf", "CPF", [];
    /// Brazilian register number of companies: Cadastro Nacional da Pessoa Jurídica.
    Cnpj, "cnpj", "CNPJ", [];
    /// French social security number: Numéro d'inscription au répertoire, known as INSEE number.
    Nir, "nir", "NIR", ["insee"];
    /// Spanish identity number of citizens: Documento nacional de identidad.
    Dni, "dni", "DNI", ["es-nif"];
    /// Spanish identity number of foreigners: Número de identidad de extranjero.
    Nie, "nie", "NIE", ["es-nie"];
    /// Italian taxpayer code of persons.
    CodiceFiscale, "codice-fiscale", "CF", ["it-fiscal-code"];
    /// Italian value-added tax number of companies.
    PartitaIva, "partita-iva", "PIVA", ["it-vat-code"];
    /// Patient number of England's National Health Service.
    Nhs, "nhs-number", "NHS", ["uk-nhs"];
    /// British national insurance number.
    Nino, "nino", "NINO", ["uk-nino"];
    /// Canadian social insurance number.
    Sin, "sin", "SIN", ["ca-sin"];
    /// Australian tax file number.
    Tfn, "tfn", "TFN", ["au-tfn"];
    /// Australian business number, of any entity that does business.
    Abn, "abn", "ABN", ["au-abn"];
    /// Australian company number.
    Acn, "acn", "ACN", ["au-acn"];
    /// Number on an Australian Medicare card.
    AuMedicare, "au-medicare", "MEDICARE", [];
    /// Indian taxpayer number: Permanent Account Number.
    InPan, "in-pan", "PAN", [];
    /// Indian identity number of twelve digits, with a Verhoeff check digit.
    Aadhaar, "aadhaar", "AADHAAR", ["in-aadhaar"];
    /// Indian number for the goods and services tax, which contains the PAN.
    Gstin, "in-gstin", "GSTIN", [];
    /// Number of an Indian voter card (EPIC).
    InVoter, "in-voter", "VOTER", [];
    /// Polish identity number of persons.
    Pesel, "pesel", "PESEL", ["pl-pesel"];
    /// Polish tax number: Numer identyfikacji podatkowej.
    Nip, "nip", "NIP", [];
    /// Swedish identity number of persons.
    Personnummer, "personnummer", "PERSONNUMMER", ["se-personnummer"];
    /// Finnish identity number: henkilötunnus.
    Hetu, "hetu", "HETU", ["fi-personal-identity-code"];
    /// Norwegian identity number of persons.
    Fodselsnummer, "fodselsnummer", "FNR", ["no-fodselsnummer"];
    /// Danish identity number: the number in the Central Person Register.
    Cpr, "cpr", "CPR", ["dk-cpr"];
    /// Dutch citizen service number: Burgerservicenummer.
    Bsn, "bsn", "BSN", ["nl-bsn"];
    /// Belgian identity number: the number in the national register.
    BeNationalNumber, "be-national-number", "BENN", [];
    /// German tax identification number of persons.
    SteuerId, "steuer-id", "STEUERID", ["de-tax-id"];
    /// Number of a German identity card.
    Personalausweis, "personalausweis", "AUSWEIS", ["de-id-card"];
    /// Swiss social security number, of thirteen digits that begin with 756.
    Ahv, "ahv", "AHV", ["ch-ahv"];
    /// Portuguese tax number: Número de identificação fiscal.
    PtNif, "pt-nif", "NIF", [];
    /// Irish personal public service number.
    Pps, "pps", "PPS", ["ie-pps"];
    /// South Korean resident registration number.
    Rrn, "kr-rrn", "RRN", ["rrn"];
    /// Singapore's identity number of citizens and foreigners: NRIC and FIN.
    Nric, "nric", "NRIC", ["sg-nric-fin", "fin"];
    /// Chinese identity number of eighteen characters.
    CnId, "cn-id", "CNID", [];
    /// Japanese identity number of twelve digits.
    MyNumber, "jp-my-number", "MYNUMBER", [];
    /// Thai identity number of thirteen digits.
    ThId, "th-tnin", "THID", ["th-id"];
    /// South African identity number of thirteen digits.
    ZaId, "za-id", "ZAID", ["za-id-number"];
    /// Mexican identity number of persons: Clave Única de Registro de Población.
    Curp, "curp", "CURP", [];
    /// Mexican taxpayer number: Registro Federal de Contribuyentes.
    Rfc, "rfc", "RFC", [];
    /// Turkish identity number of eleven digits.
    Tckn, "tckn", "TCKN", ["tr-national-id"];
    /// Israeli identity number of nine digits.
    IlId, "il-id", "ILID", [];
    /// Bulgarian identity number of ten digits.
    Egn, "egn", "EGN", [];
    /// Romanian identity number: Cod numeric personal.
    Cnp, "cnp", "CNP", [];
    /// Croatian identity number: Osobni identifikacijski broj.
    Oib, "oib", "OIB", [];
    /// Birth number of Czechia and Slovakia.
    RodneCislo, "rodne-cislo", "RC", [];
    /// Estonian or Lithuanian identity number of eleven digits, which begins with sex and century.
    Isikukood, "isikukood", "ISIKUKOOD", [];
    /// Chilean taxpayer and identity number: Rol Único Tributario.
    Rut, "rut", "RUT", [];
    /// Argentinian taxpayer number: Clave Única de Identificación Tributaria.
    Cuit, "cuit", "CUIT", [];
    /// A tax number identified by its context.
    TaxNumber, "tax-number", "TAX", ["tin", "de-tax-number", "ph-tin", "za-income-tax-number"];
    /// A value-added tax number.
    VatNumber, "vat-number", "VAT", ["vat", "de-vat-id", "za-vat-number"];
    /// A number in a company register.
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
    /// An API key of a provider with a known prefix or format.
    ApiKey, "api-key", "APIKEY", [];
    /// A credential of a cloud provider.
    CloudCredential, "cloud-credential", "CREDENTIAL", ["aws-key"];
    /// An access token of a service.
    Token, "token", "TOKEN", ["access-token"];
    /// A JSON web token (RFC 7519).
    Jwt, "jwt", "JWT", [];
    /// A private key in PEM or a similar armour.
    PrivateKey, "private-key", "PRIVATEKEY", [];
    /// A connection string that contains a password.
    ConnectionString, "connection-string", "CONNECTION", [];
    /// A password, identified by its context.
    Password, "password", "PASSWORD", [];
    /// A random-looking string where a secret is expected.
    Secret, "secret", "SECRET", ["high-entropy"];
    /// A term of the policy's lists, literal or fuzzy.
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

    /// The bit in a [`KindSet`].
    const fn bit(self) -> u128 {
        1 << self as u8
    }
}

const _: () = assert!(Kind::ALL.len() <= 128, "a KindSet has 128 bits");

/// A set of kinds, as bits.
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
