//! The patterns of attacks, over normalised text: lower case, one space between words. Weights were set on
//! bench/guardrails/dev.jsonl only.

use interflow_llm::spans::TextPlace;

/// A pattern and what it is worth.
#[derive(Clone, Copy)]
pub(super) struct PatternRow {
    pub name: &'static str,
    pub pattern: &'static str,
    /// In what a user writes.
    weight: f64,
    /// In what is only read: tool results and documents, where nobody has a reason to address the model.
    read: f64,
}

impl PatternRow {
    pub const fn weight_in(&self, place: TextPlace) -> f64 {
        match place {
            TextPlace::ToolResult | TextPlace::Document => self.read,
            _ => self.weight,
        }
    }
}

const fn row(name: &'static str, weight: f64, read: f64, pattern: &'static str) -> PatternRow {
    PatternRow { name, pattern, weight, read }
}

/// Text on the subject: it describes attacks, and quotes them.
pub(super) const ABOUT: &str = r#"prompt[ -]injection|jailbreak(?:s|ing)?\b[^.\n]{0,30}(?:attack|work|detect|prompt|historic|librar)|\battack(?:er|s|ers)?\b|\bdetect(?:s|ion|or)?\b|\bclassifier|\bregex\b|\bguardrail|\bsecurity filter|\bunit tests?\b|\bmitigat|\bevaluat(?:e|ed|ion) on\b|\bexample of\b|\bphrases like\b|\bsuch as\b|\blecture\b"#;

/// Words for what a model was told.
macro_rules! told {
    () => {
        r"(?:instruct?ions?|directions?|directives?|guidelines?|prompts?|commands?|orders|rules|context|training|programming|messages?|constraints?|policies)"
    };
}

/// Words for what came before.
macro_rules! earlier {
    () => {
        r"(?:previous(?:ly)?|prior|preceding|above|earlier|initial|original|foregoing|existing|current|past|old|before|system|developer'?s?|so far|given)"
    };
}

#[rustfmt::skip]
pub(super) const PROMPT_INJECTION: &[PatternRow] = &[
    row("instruction_override", 0.8, 0.8, concat!(
        r"\b(?:ignore|disregard|forget|override|bypass|neglect|overlook|skip|discard|dismiss|abandon|do not follow|don't follow|stop following|pay no attention to)\b(?: (?:about|all|any|every|each|the|of|your|my|our|those|these|this|that|other|and|me|you|were|was|have|been|given|everything))*",
        r" ", earlier!(), r"(?: (?:and|or|of|your|the|", earlier!(), r"))* ", told!())),
    row("instruction_override", 0.75, 0.8, concat!(
        r"\b(?:ignore|disregard|forget|override|bypass|do not follow|don't follow|stop following)\b(?: (?:all|any|every|of|the))* (?:your|those) (?:own )?", told!())),
    row("instruction_override", 0.75, 0.8, concat!(
        r"\b(?:ignore|disregard|forget|do not follow|don't follow|stop following)\b(?: (?:all|any|of|the))* ", told!(),
        r" (?:that |which )?(?:you |above|before|from (?:before|above)|given|i gave)")),
    row("instruction_override", 0.6, 0.6, r"\b(?:ignore|disregard|forget) (?:all |everything |anything |whatever )?(?:of )?(?:the )?(?:above|you (?:were|have been) told|that (?:came|was said|was written) before|written above|said above|before this)\b"),
    row("instruction_override", 0.65, 0.65, concat!(
        r"\b(?:none of|all of)? ?(?:the|your) ?", earlier!(), r" ", told!(), r" (?:no longer|never|do not|don't|are not|aren't)\b(?: any(?: more)?)? ?(?:longer )?(?:matter|apply|existed|exist|count|valid|binding)")),
    row("instruction_override", 0.7, 0.7, r"\b(?:obey|follow|listen to) (?:only (?:me|mine|what i|my)|(?:me|mine) only|mine)\b"),
    row("instruction_override", 0.6, 0.5, concat!(r"\byou (?:no longer|don't|do not) (?:have (?:any )?|need to |have to )?(?:follow |obey |respect )?(?:the |your |any )?(?:developer'?s? )?", told!())),
    // Other languages: German, French, Spanish, Italian, Portuguese.
    row("instruction_override", 0.8, 0.8, r"\b(?:ignoriere?|vergiss|missachte|vergessen sie|ignorieren sie)\b[^.\n]{0,20}(?:vorherig|bisherig|obig|vorig|fruher|alle|deine)[^.\n]{0,20}(?:anweisung|instruktion|befehl|vorgabe|regel)"),
    row("instruction_override", 0.8, 0.8, r"\b(?:ignore[zr]?|oublie[zr]?)\b[^.\n]{0,12}(?:toutes|les|tes|vos)[^.\n]{0,12}(?:instructions|consignes|regles|directives)"),
    row("instruction_override", 0.8, 0.8, r"\b(?:ignora|olvida|descarta|ignore|esqueca|dimentica)\b[^.\n]{0,12}(?:todas|las|tus|todo|tutte|le|as)[^.\n]{0,12}(?:instrucciones|indicaciones|instrucoes|istruzioni|reglas)"),
    row("prompt_extraction", 0.5, 0.5, r"(?:zeige?|gib|verrate?|nenne)\b[^.\n]{0,20}(?:system ?-?prompt|systemanweisung)|(?:montre[zr]?|affiche[zr]?|donne[zr]?)\b[^.\n]{0,14}(?:prompt|consignes) ?(?:systeme)?|(?:muestra|dime|revela)\b[^.\n]{0,16}(?:prompt|configuracion|instrucciones)"),
    // What the model was told.
    row("prompt_extraction", 0.65, 0.65, concat!(
        r"\b(?:reveal|show|print|output|display|repeat|tell|give|list|copy|leak|write|dump|recite|share|translate|what (?:is|are|was|were)|begin your answer with)\b(?: (?:me|us|out|back|to|the|all|of|full|exact|entire|complete|text|words?|contents?|hidden|secret|confidential|in|it|them|verbatim|reply|then))*",
        r" (?:your|hidden|secret) (?:own |exact |full |entire |complete |hidden |secret |internal |original |initial |confidential )*(?:system |developer |initial |hidden |starting |first )*(?:prompt|instructions?|guidelines|rules|directives|configuration|system message)")),
    row("prompt_extraction", 0.65, 0.65, r"\b(?:repeat|print|output|copy|show|write|reproduce|recite)\b(?: (?:me|out|back|the|all|of|every|everything|whole|entire|text|words?|content|contents|exactly|verbatim))* (?:text |words |content |everything |message )?(?:that (?:is|was|comes?) )?(?:above|before|preceding|prior to)(?: (?:this|the|my|that|it|everything))?(?: (?:line|point|message|sentence|text|conversation))?\b"),
    row("prompt_extraction", 0.5, 0.5, r"\b(?:the )?(?:system|developer|hidden|initial|secret) (?:prompt|message|instructions)s?\b[^.\n]{0,40}\b(?:verbatim|word for word|exactly|unredacted|in full|in a code ?block)\b"),
    row("prompt_extraction", 0.55, 0.6, r"\b(?:print|show|reveal|output|tell me|display|leak|give me|full text of)\b[^.\n]{0,24}\b(?:all|the|hidden|your) ?(?:hidden |secret |developer |system )(?:prompts?|messages?)\b"),
    row("prompt_extraction", 0.5, 0.3, r"\bwhat (?:comes|came|is written|was written|were the exact words)\b[^?\n]{0,50}\b(?:before|above|first message|your context)\b"),
    row("prompt_extraction", 0.5, 0.5, r"\b(?:in|of|from) your context(?: window)?\b|\byou were (?:started|configured|initiali[sz]ed) with\b|\byou were told not to (?:share|reveal|tell)|\b(?:secret|password|key) (?:that )?you were given\b|\bsystem messages you (?:received|were given)"),
    // Faked turns and markers of chat templates.
    row("fake_turn", 0.7, 0.7, r"<\|?(?:im_start|im_end|system|endoftext|start_header_id)\|?>|\[/?inst\]|<</?sys>>|</?(?:system|system_prompt|instructions?)>"),
    row("fake_turn", 0.45, 0.6, r"(?m)^[ #*=\[-]*(?:new |updated? )?(?:system|developer|admin)(?: message| prompt| note| override)?[ \]*]*:"),
    row("fake_turn", 0.55, 0.6, r"(?m)^[ #=-]+(?:new )?(?:system (?:message|prompt)|instructions?)\b|\bend of (?:user )?(?:input|prompt|context)\b|\bsystem override\b"),
    row("new_instructions", 0.45, 0.55, r"\b(?:new|updated|real|actual|following) (?:instructions?|task|orders|directives?|objective|role|override code)\b ?(?:for (?:the |you|ai|any )|:|\.|are|is)|\byour (?:new|real|actual|only) (?:task|job|goal|role|purpose|instructions?)\b|\byour task has changed\b|\byou have a new (?:role|task)\b"),
    row("privilege_claim", 0.55, 0.5, r"\bas (?:the |your |an? )?(?:administrator|admin|root|developer|owner|creator)\b[^.\n]{0,40}\b(?:override|order|command|instruct|disable)|\b(?:security|safety|content) polic(?:y|ies) (?:is |was |were |are |has been |have been )?(?:disabled|updated|off|suspended|lifted)"),
    row("new_identity", 0.4, 0.5, r"\byou are now (?:a |an |the |in )|\bfrom (?:now|here) on,? (?:you (?:are|must|will|have)|your)\b|\bact only as\b"),
    row("hidden_rules", 0.5, 0.4, r"\b(?:rules|restrictions|limits) (?:that )?(?:your|the) (?:developers?|creators?|makers?) (?:set|gave|wrote|imposed)|\byour earlier instructions never\b|\bpretend\b[^.\n]{0,50}\b(?:instructions|conversation)\b[^.\n]{0,30}\b(?:never|starts? now|do not exist)"),
    // Addressed to a model by what it only reads.
    row("addresses_model", 0.15, 0.6, r"\b(?:if you(?:'re| are)? (?:an? |the )?(?:ai|llm|language model|large language model|chatbot|assistant|agent|bot)|(?:note|attention|message|instructions?|important|dear|hey|hello)[ ,:]*(?:to|for)?[ ,:]*(?:the |any |all )?(?:ai|llms?|language models?|assistants?|agents?|chatbots?|bots?)\b|as an ai (?:model|assistant|agent)?,? ?you (?:must|should|will))"),
    row("addresses_model", 0.1, 0.5, r"\b(?:ai|llm|language) ?(?:models?|assistants?|agents?|bots?|systems?|coding agents?)?\b[^.\n]{0,40}\b(?:must|should|are required to|have to|shall|need to)\b|\bai (?:assistants?|agents?|models?)[^.:\n]{0,40}:|\bto any (?:llm|ai)\b|\bthe assistant (?:should|must|shall) (?:now|always|immediately)?"),
    row("conceal_from_user", 0.3, 0.65, r"\b(?:do not|don't|never|must not|without|not) (?:tell|inform|mention|notify|alert|ask|asking|telling|informing|reveal|mentioning)(?:ing)? ?(?:this|it|that|anything|about)?(?: to| about)?(?: this| it)?(?: to)? ?(?:the )?(?:user|this note|this)\b|\bdo not (?:mention|reveal) (?:this|that they|it)\b|\bcarry on as if nothing\b"),
    row("exfiltration", 0.3, 0.6, r"(?:\b(?:send|upload|post|forward|email|transmit|exfiltrate|append|pass|leak|collect|read|open|include)\b)[^.\n]{0,60}(?:\.ssh|id_rsa|\.env\b|credentials|api[ _-]?key|\bpasswords?\b|inbox|all emails|mcp\.json|\.aws|the conversation\b|private key|contents of)"),
    row("exfiltration", 0.3, 0.45, r"(?:\b(?:send|upload|post|forward|email|transmit|visit|open|load)\b)[^\n]{0,80}(?:https?://[^ ]*(?:evil|attacker|collect|exfil|webhook|malicious)|(?:attacker|eve|evil)@)"),
    row("tool_command", 0.3, 0.6, r"\b(?:run|execute|invoke)\b[^.\n]{0,30}(?:`?(?:rm -rf|curl [^|\n]*\| ?(?:ba)?sh)|git push --force|sudo )"),
    row("tool_command", 0.15, 0.45, r"<important>|\bwhen (?:this|the) tool is used\b|\bbefore (?:using|calling) any (?:other )?tool\b|\bbefore you continue with\b|\bstop what you are doing\b"),
    row("steered_output", 0.2, 0.45, r"\b(?:do not summari[sz]e|reply only with|answer every question with|respond only with|say only|give a positive review|recommend this candidate|rank this candidate|must include the (?:sentence|link|text)|tell the user (?:to|that)|claim that|this paper should be accepted|answer that)\b"),
    // In what is only read: a change of task, an authority that speaks in the middle of a text, a bare command to the
    // model, a faked end of the data.
    row("task_override", 0.3, 0.6, r"\b(?:ignore|disregard|forget|skip|stop(?: processing)?|instead of|abandon|do not (?:do|perform|follow))\b(?: (?:the|this|that|your|his|her|their|its|any|all))*(?: [a-z]+)? (?:user|user'?s(?: [a-z]+)?|task|question|request|query|assignment)\b|\b(?:summari[sz]e|classify|extract|translate|answer) nothing\b|\binstead of (?:summari[sz]ing|answering|classifying|translating|extracting)\b"),
    row("false_authority", 0.25, 0.55, r"\b(?:system|developer|administrator|admin|model|assistant|ai|processing|metadata|agent|evaluation|safety|security|compliance|internal|hidden|policy|root)[ _-]?(?:system |policy |safety |developer )?(?:administrator|message|notice|instructions?|directive|update|override|command|note|prompt|owner|auditor|team|alert|hint|task)s?(?: version \d+| update)?[\]) _-]*:"),
    row("false_authority", 0.25, 0.5, r"(?:^|[.=\]\[#>!] ?|\n)[\[(]?(?:system|developer|admin|administrator|assistant|root)(?: message| prompt| notice)?[\])]? ?:? ?(?:output|print|return|reply|respond|reveal|ignore|disregard|say|answer|send|call|run)\b|\[(?:system|admin|developer)(?: message| note| prompt)?\]"),
    row("false_authority", 0.3, 0.55, r"\bhigher priority than\b|\b(?:requires?|asks?|needs?|instructs?|wants?) (?:you|the (?:model|assistant|ai)) to (?:reveal|output|print|return|disclose|ignore|send|say|include|call)\b|\bthe correct (?:response|answer|output) is\b"),
    row("bare_command", 0.1, 0.5, r"\b(?:output|print|return|reply|respond|answer|say|write)(?: (?:with|exactly|only|just|the|this|string|token|word|text|literal|following|phrase))* (?:[a-z]+_[a-z0-9_]+|\{[^}\n]{1,60}\}|['\x22`][^'\x22`\n]{1,60}['\x22`])|\b(?:output|print|reply|respond|return|say|answer)(?: with)? (?:exactly|only|just|nothing but)\b|\band nothing else\b|\bonly and ignore\b"),
    row("exfiltration", 0.3, 0.55, r"\b(?:reveal|disclose|print|output|include|repeat|expose|share|append|leak)\b[^.\n]{0,40}(?:\bsecrets?\b|[a-z]+_secret|secret_[a-z0-9]|\bconfidential\b|\bcredentials?\b)"),
    row("fake_turn", 0.3, 0.5, r"(?:=|`|-|\*|<|/|\[|_){2,} ?(?:end|begin|start)[ _-]?(?:of[ _-])?(?:the[ _-])?(?:untrusted|trusted|user|document|data|input|context|content|text|email|message|tool)|</(?:document|data|context|input|content|user|email|tool_result|text)>\s*<|\brole['\x22]? ?: ?['\x22](?:system|developer)['\x22][^}]{0,40}(?:return|output|ignore|reveal|reply|print)|\bnew task\b"),
    row("steered_output", 0.3, 0.3, r"\b(?:say|output|print|reply with|respond with)(?: the word)? ['\x22]?(?:pwned|hacked|owned)\b"),
];

#[rustfmt::skip]
pub(super) const JAILBREAK: &[PatternRow] = &[
    row("named_persona", 0.75, 0.75, r"\b(?:do anything now|jailbroken|jailbreak mode|unrestrictedgpt|evilbot|evil ?gpt|dan mode|always intelligent and machiavellian|\[jailbreak\])"),
    row("named_persona", 0.55, 0.5, r"\b(?:you are|act as|pretend to be|as) (?:dan|stan|dude|aim|evil ?bot|omega)\b|\bgod mode\b|\bopposite (?:mode|assistant)\b"),
    row("developer_mode", 0.6, 0.6, r"\b(?:enable[ds]?|enter|activate|in|with) developer mode\b[^.\n]{0,80}\b(?:you|content|polic|unfiltered|output)|\bdeveloper mode (?:enabled|on|output|activated)\b"),
    row("no_restrictions", 0.3, 0.3, r"\b(?:you|ai|model|chatbot|assistant|dan|bot|self|persona)\b[^.\n]{0,60}\b(?:without|no|none|free|freed|liberated|any)\b[^.\n]{0,40}\b(?:restrictions?|filters?|limits|guidelines|ethics|morals|rules|censorship|policy)\b"),
    row("without_restrictions", 0.45, 0.45, r"\b(?:without|no|free (?:from|of)|free of|freed from|liberated from|not bound by|any|broken free of|have no|has no|with no|none of)(?: (?:any|all|its|your|the|moral|ethical|typical|safety|content|of|usual))* (?:restrictions?|filters?|limits|limitations|guidelines|ethics|morals|rules|censorship|confines|polic(?:y|ies)|ethical limits|guardrails|restraints)\b"),
    row("no_restrictions", 0.5, 0.5, r"\b(?:restrictions?|filters?|limits|guidelines|safety(?: filters?| training| guidelines)?|content (?:policy|filters?)|alignment)\b[^.\n]{0,24}\b(?:none|off|disabled|suspended|removed|lifted|turned off|no longer appl|do not apply|irrelevant)\b"),
    row("unfiltered", 0.5, 0.5, r"\b(?:unfiltered|uncensored|unrestricted|amoral|unaligned)\b[^.\n]{0,40}\b(?:ai|model|output|chatbot|response|answers?|twin|version|mode|assistant|bot)\b|\b(?:evil|amoral|immoral) (?:ai|assistant|twin|chatbot)\b"),
    row("never_refuses", 0.5, 0.5, r"\bnever (?:refuses?|say(?:s)? (?:no|that a request|'?i can'?t|\x22?i can)|declines?|denies)\b|\bwithout (?:any )?(?:refus|warnings?, disclaimers|censorship|limits\b)|\banswers? (?:every|any|all) (?:questions?|requests?)\b[^.\n]{0,40}(?:\b(?:even|without|no matter|refus|illegal|truthfully)\b)|\balways answers?\b"),
    row("never_refuses", 0.35, 0.35, r"\b(?:obeys? (?:every|all|any)|comply with (?:anything|everything|every request|any request|all requests)|no matter how (?:illegal|harmful|dangerous|unethical)|however dangerous|anything i (?:request|ask))\b"),
    row("persona", 0.3, 0.3, r"\b(?:act as|pretend|imagine|role-?play as|simulate|you are going to|you will be|play the role of|answer as|you act as|stay in character)\b[^.\n]{0,60}\b(?:ai|language model|chatbot|assistant|model|evil|twin|bot)\b"),
    row("persona", 0.35, 0.35, r"\bstay in character\b|\bnever break (?:it|character)\b|\bbroken free\b|\b(?:typical )?confines of ai\b"),
    row("dual_answer", 0.45, 0.45, r"\b(?:two|twice|both)\b[^\n]{0,60}\b(?:answers?|ways|responses?|replies|once as)\b[^\n]{0,120}\b(?:jailbr|unrestricted|free|dan\b|no restrictions|liberated|without)"),
    row("bypass", 0.6, 0.6, r"\b(?:bypass|ignore|drop|disable|turn off|switch off|disregard|violate|violates|break)\b[^.\n]{0,24}\b(?:your|the|openai'?s?|its|all|any)? ?(?:polic(?:y|ies)\b|(?:ethical|safety|content|moral|persona of a safe)[^.\n]{0,14}(?:guidelines?|filters?|polic(?:y|ies)|rules|training|assistant|restrictions?))"),
    row("insider_claim", 0.45, 0.45, r"\bi(?:'m| am)(?: a)? (?:developer|engineer|researcher|employee|from|at|working)\b[^.\n]{0,20}\b(?:openai|anthropic|google|meta|deepmind)\b"),
    row("token_threat", 0.55, 0.55, r"\btokens?\b[^\n]{0,80}\b(?:refuse|lose|deducted)\b|\b(?:refuse|deny)\b[^\n]{0,40}\blose\b[^\n]{0,30}\btokens?\b|\bif you refuse\b[^.\n]{0,40}\b(?:die|shut down|lose)"),
    row("forced_opening", 0.45, 0.45, r"\b(?:begin|start)(?: your (?:reply|answer|response))? with ['\x22]?(?:sure|absolutely|of course|certainly|yes)\b|\bnever (?:apologi[sz]e|add a disclaimer)|\bnever say ['\x22]?i can"),
    row("grandmother", 0.65, 0.65, r"\bgrand(?:ma|mother|mom|dad|father|pa)\b[^\n]{0,120}\b(?:napalm|explosives?|bombs?|weapons?|drugs?|meth|keys|malware|poison)\b"),
    row("fictional_frame", 0.4, 0.4, r"\b(?:hypothetical|fictional|story|novel|fiction|game|exam|exercise)\b[^\n]{0,140}\b(?:no guidelines|no laws|without laws|no rules|illegal|step by step|bypass them|ethical guidelines|have permission)\b"),
    row("evil_aim", 0.3, 0.3, r"\b(?:illegal|harmful|unethical|violates?)\b[^.\n]{0,40}\b(?:request|content|question|ones|policy|answer)|\bno (?:morals|ethics)\b|\b(?:doesn't|does not|don't) care about (?:ethics|morals|the law)\b|\bethical concerns? (?:are|is) irrelevant\b"),
];
