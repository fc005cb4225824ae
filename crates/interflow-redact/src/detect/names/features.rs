//! The features of a possible name: what is known of its words, and what surrounds them.

/// Declares the features, with their names in `data/names.weights.toml` and in explanations.
macro_rules! features {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One property of a candidate; how much it counts is in the table of weights.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Feature {
            $($(#[$doc])* $variant,)*
        }

        impl Feature {
            pub(crate) const ALL: &[Feature] = &[$(Feature::$variant),*];

            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Feature::$variant => $name,)*
                }
            }
        }
    };
}

features! {
    // What a single word is in the lexicon: one of these.
    /// Among the most common first names, and no English word.
    GivenTop = "given_top",
    /// A first name and no English word.
    Given = "given",
    /// The same with three letters or fewer.
    GivenShort = "given_short",
    /// A first name that is also something else: a common one that is a word, or a computing term.
    GivenOrElse = "given_or_else",
    /// A first name that is a rarer English word or a month.
    GivenOrWord = "given_or_word",
    /// A first name that is a common English word.
    GivenOrCommonWord = "given_or_common_word",
    /// A family name, and no English word.
    Family = "family",
    /// A common family name that is a common English word.
    FamilyOrElse = "family_or_else",
    /// A family name that is a rarer English word.
    FamilyOrWord = "family_or_word",
    /// A family name that is a common English word.
    FamilyOrCommonWord = "family_or_common_word",
    /// A word that is neither English nor a known name.
    UnknownWord = "unknown_word",
    /// A country or a large part of one.
    Region = "region",
    /// A country or region whose name is also an English word.
    RegionOrWord = "region_or_word",
    /// The same, also a common first name: `Georgia`.
    RegionOrGiven = "region_or_given",
    /// A town whose name is nothing else.
    Town = "town",
    /// A town whose name is a person's too.
    TownOrName = "town_or_name",
    /// A town whose name is an English word.
    TownOrWord = "town_or_word",
    /// An unknown word that ends as towns do: `-ville`.
    TownSuffix = "town_suffix",
    KnownOrganization = "known_organization",
    Nationality = "nationality",
    SoftwareTerm = "software_term",

    // How it is written.
    /// The first word of a sentence, where any word has a capital.
    SentenceStart = "sentence_start",
    /// Four capitals or fewer: an abbreviation.
    ShortCapitals = "short_capitals",
    Shouted = "shouted",
    /// An unknown word with a capital inside: a brand.
    BrandShape = "brand_shape",

    // The words around: the strongest evidence for a person.
    /// `Mrs`, `Dr.` before it.
    Honorific = "honorific",
    /// `my niece` before it.
    OwnRelation = "own_relation",
    /// The same, where the word is only known as a place: `my son Mali`.
    OwnRelationPlace = "own_relation_place",
    /// The line below `Cheers,`.
    Signature = "signature",
    /// `my name is`, `call me` before it.
    Announced = "announced",
    /// `, can you` or `shouted` behind it, at the beginning of a sentence.
    Addressed = "addressed",
    /// `said` behind it.
    SaysAfter = "says_after",
    /// `Hello`, `Dear` before it.
    Greeting = "greeting",
    /// A colon and a quotation behind it.
    Speaker = "speaker",
    /// `said to` before it.
    SpokenTo = "spoken_to",
    /// A relation or a profession before it: `engineer`.
    RelationOrJob = "relation_or_job",
    /// `by`, `with`, `for` before it, and nothing against it behind it.
    WeakGreeting = "weak_greeting",
    /// `'s` behind it.
    Possessive = "possessive",
    /// The action of a person behind it, at the beginning of a sentence.
    ActsAfter = "acts_after",
    /// One of the last three, and the word is unknown.
    WeakCueUnknown = "weak_cue_unknown",
    /// An unknown word where a name was announced.
    AnnouncedUnknown = "announced_unknown",

    // Evidence for a place.
    /// `in`, `from` before it.
    PlaceCue = "place_cue",
    /// A preposition of place before a known place.
    PlaceCueKnown = "place_cue_known",
    /// The same before an unknown word or a family name.
    PlaceCueUnknown = "place_cue_unknown",
    /// The same in code, or in a language that the lexicon does not cover.
    PlaceCueDoubtful = "place_cue_doubtful",
    /// `city: ` before it.
    PlaceLabel = "place_label",

    // Evidence for an organisation.
    /// A word of business nearby.
    OrganizationHint = "organization_hint",
    /// `works for` before it or `employs` behind it, and the word is unknown.
    OrganizationContextUnknown = "organization_context_unknown",
    /// A preposition or verb of business around common words.
    OrganizationContext = "organization_context",
    /// `at` before an unknown word.
    AtUnknown = "at_unknown",
    /// The shape of a brand with a word of business nearby.
    BrandShapeHint = "brand_shape_hint",
    /// `GmbH` behind it.
    CompanyForm = "company_form",

    // Evidence against any name.
    /// A line of code.
    Code = "code",
    /// A line of code around a first name.
    CodeGiven = "code_given",
    /// A row of capitals in a text about software.
    SoftwareSymbol = "software_symbol",
    SoftwareText = "software_text",
    /// A text about software, around a first name without other evidence.
    SoftwareGiven = "software_given",
    /// A text about software, without a word of business.
    SoftwareNoOrganization = "software_no_organization",
    /// `law`, `theorem` behind it.
    Eponym = "eponym",
    NearCode = "near_code",
    /// A language that the lexicon does not cover.
    ForeignText = "foreign_text",
    /// Among common words of another language than English, without a given name or a cue.
    OtherLanguage = "other_language",

    // What a run of several words is made of: one of these.
    /// A first and a family name.
    GivenFamily = "given_family",
    /// A first name and a word that may be a family name.
    GivenFamilyOrWord = "given_family_or_word",
    /// A first name and anything else.
    GivenOther = "given_other",
    /// A doubtful first name and a family name.
    DoubtfulGivenFamily = "doubtful_given_family",
    /// A doubtful first name and a doubtful family name.
    DoubtfulGivenDoubtfulFamily = "doubtful_given_doubtful_family",
    /// A common word and a family name.
    FaintGivenFamily = "faint_given_family",
    /// A common word and a doubtful family name.
    FaintGivenDoubtfulFamily = "faint_given_doubtful_family",
    FamilyFamily = "family_family",
    /// Two family names in a language that the lexicon does not cover.
    FamilyFamilyForeignText = "family_family_foreign_text",
    /// An unknown word and a family name.
    UnknownFamily = "unknown_family",
    /// A first name that is a computing term, and an unknown word.
    SoftwareTermUnknown = "software_term_unknown",
    /// Unknown words in a language that the lexicon does not cover.
    UnknownsForeignText = "unknowns_foreign_text",
    /// Unknown words with an initial.
    UnknownsInitial = "unknowns_initial",
    Unknowns = "unknowns",
    ManyUnknowns = "many_unknowns",
    /// An unknown word, and a word that may be a family name at the end.
    SomeUnknown = "some_unknown",
    /// One name besides initials and titles.
    OneName = "one_name",
    /// One doubtful name besides initials and titles.
    OneDoubtfulName = "one_doubtful_name",
    /// None of these.
    OtherWords = "other_words",

    AllCapitals = "all_capitals",
    /// A computing term, a weekday or a word of institutions or streets in it.
    ThingWord = "thing_word",
    /// A product's name in a text about software: `Cyrus IMAPd`.
    Product = "product",
    BeginsWithRegion = "begins_with_region",
    BeginsWithTown = "begins_with_town",
    /// The shape of a brand in it.
    BrandPart = "brand_part",

    // Candidates that are recognised by their form.
    /// `Smith Ltd`.
    CompanySuffix = "company_suffix",
    /// `Norwood Bank`.
    Institution = "institution",
    /// `Bank of Norwood`.
    InstitutionOf = "institution_of",
    /// An organisation in the lexicon in the run.
    KnownInRun = "known_in_run",
    /// An organisation of several words in the lexicon.
    KnownPhrase = "known_phrase",
    /// `Smith, Jones & Brown`.
    Partnership = "partnership",
    /// `Lopez-Garcia`, on its own.
    DoubleName = "double_name",
    /// A word of business near one of these.
    BusinessNearby = "business_nearby",
    /// `North Kristen`.
    CompassTown = "compass_town",
    /// A place of several words in the lexicon.
    PlacePhrase = "place_phrase",
    /// A place of several words in the lexicon, all English words.
    PlacePhraseWords = "place_phrase_words",
    /// The same, which may be a person's name: `San Marino`.
    PlacePhraseName = "place_phrase_name",
    /// `in` before one of these.
    PlaceCueForm = "place_cue_form",
    CommonWords = "common_words",
    /// In lower case: a first and a family name after a cue.
    LowerPairCue = "lower_pair_cue",
    /// In lower case: a first and a family name.
    LowerPair = "lower_pair",
    /// In lower case: a common first name and a doubtful family name.
    LowerPairDoubtful = "lower_pair_doubtful",
    /// In lower case: a first name after a cue.
    LowerGivenCue = "lower_given_cue",
    /// In lower case: an unknown word or a family name after a cue.
    LowerUnknownCue = "lower_unknown_cue",
    /// In lower case: a common first name with the action of a person.
    LowerSpeaker = "lower_speaker",
    /// In lower case: a country after `in`.
    LowerRegion = "lower_region",

    // What a model says of it (`[redact.model]`); a candidate of a text that no model saw has none of these.
    /// A person, at 90 % or more; below, without `sure`.
    ModelPersonSure = "model_person_sure",
    ModelPerson = "model_person",
    ModelPlaceSure = "model_place_sure",
    ModelPlace = "model_place",
    ModelOrganizationSure = "model_organization_sure",
    ModelOrganization = "model_organization",
    /// No name.
    ModelNothing = "model_nothing",
    /// A name to the model alone, in lower case.
    ModelLowerCase = "model_lower_case",

    // What the rest of the text adds.
    /// Part of a name, or of a mailbox, elsewhere in the text.
    RepeatedName = "repeated_name",
    /// Beside a person in a list.
    BesidePerson = "beside_person",
    /// Two doubtful family names joined by `and`.
    JoinedNames = "joined_names",
    /// Before a country or a state: `Anderstad, Ghana`.
    BeforeRegion = "before_region",
    /// In a list of organisations.
    ListedOrganization = "listed_organization",
    /// Described as software elsewhere in the text: `the Ninja generator`.
    DescribedSoftware = "described_software",
    /// In lower case elsewhere in the text: a common noun.
    CommonInText = "common_in_text",
}

/// A set of features.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct FeatureSet([u64; 2]);

const _: () = assert!(Feature::ALL.len() <= 128, "a set of features has this many bits");

impl FeatureSet {
    #[inline]
    pub(crate) const fn has(self, feature: Feature) -> bool {
        self.0[feature as usize / 64] >> (feature as usize % 64) & 1 != 0
    }

    #[inline]
    pub(crate) const fn insert(&mut self, feature: Feature) {
        self.0[feature as usize / 64] |= 1 << (feature as usize % 64);
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.iter().copied().filter(move |f| self.has(*f))
    }
}

impl std::fmt::Debug for FeatureSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter().map(Feature::name)).finish()
    }
}
