//! Scripted conversations between the demo's agents and models.

pub struct DialogueScript {
    pub prompt: &'static str,
    pub steps: &'static [DialogueStep],
}

/// One model response and the agent's reply.
pub struct DialogueStep {
    pub thinks: &'static str,
    pub says: &'static str,
    /// Tool calls: name, JSON arguments, result.
    pub calls: &'static [(&'static str, &'static str, &'static str)],
    pub then: &'static str,
}

const fn text_step(says: &'static str) -> DialogueStep {
    DialogueStep { thinks: "", says, calls: &[], then: "" }
}

pub const TITLE: DialogueStep = text_step(r#"{"isNewTopic": true, "title": "Checkout total off by a cent"}"#);

pub const FIX: DialogueScript = DialogueScript {
    prompt: "The checkout total is off by one cent for some carts. Find out why and fix it.",
    steps: &[
        DialogueStep {
            thinks: "Off by one cent sounds like floating point money. I should find where totals are summed.",
            says: "I'll look for the place where totals are summed up.",
            calls: &[
                (
                    "Grep",
                    r#"{"pattern":"total","path":"src","output_mode":"files_with_matches"}"#,
                    "src/cart.rs\nsrc/money.rs\nsrc/receipt.rs",
                ),
                (
                    "Read",
                    r#"{"file_path":"/srv/shop/src/cart.rs"}"#,
                    "1  pub fn total(items: &[Item]) -> f64 {\n2      items.iter().map(|i| i.price * i.count as f64).sum()\n3  }\n",
                ),
            ],
            then: "",
        },
        DialogueStep {
            thinks: "Prices are f64. The sum is rounded only when printed. Two independent questions: who calls it, and what the tests say.",
            says: "Prices are floating point numbers here. Two helpers can look at the callers and at the tests meanwhile.",
            calls: &[
                (
                    "Task",
                    r#"{"description":"Find callers of total","subagent_type":"explore","prompt":"List every caller of cart::total in the workspace and say whether it rounds the result."}"#,
                    "Two callers: receipt.rs rounds for display, api/checkout.rs does not.",
                ),
                (
                    "Task",
                    r#"{"description":"Read the money tests","subagent_type":"explore","prompt":"Read the tests about money and say which cases of rounding they miss."}"#,
                    "No test has more than one item with a price that binary fractions cannot hold.",
                ),
            ],
            then: "",
        },
        DialogueStep {
            thinks: "",
            says: "The sum is rounded in one of two places only. I'll count in cents.",
            calls: &[
                (
                    "Edit",
                    r#"{"file_path":"/srv/shop/src/cart.rs","old_string":"-> f64 {\n    items.iter().map(|i| i.price * i.count as f64).sum()","new_string":"-> Cents {\n    items.iter().map(|i| i.price * i.count).sum()"}"#,
                    "The file has been updated.",
                ),
                (
                    "Bash",
                    r#"{"command":"cargo test -p shop","description":"Run the tests of the shop"}"#,
                    "running 42 tests\n..........................................\ntest result: FAILED. 41 passed; 1 failed\n\nreceipt::tests::a_receipt_adds_up: expected 10.01, got 10.00",
                ),
            ],
            then: "",
        },
        DialogueStep {
            thinks: "The receipt still formats a float.",
            says: "",
            calls: &[
                (
                    "Edit",
                    r#"{"file_path":"/srv/shop/src/receipt.rs","old_string":"{:.2}","new_string":"{}"}"#,
                    "The file has been updated.",
                ),
                (
                    "Bash",
                    r#"{"command":"cargo test -p shop","description":"Run the tests again"}"#,
                    "running 42 tests\n..........................................\ntest result: ok. 42 passed; 0 failed",
                ),
            ],
            then: "",
        },
        DialogueStep {
            thinks: "",
            says: "Fixed: `cart::total` summed floating point prices, and only the receipt rounded the sum. Totals are now counted in \
                whole cents (`Cents`), the receipt prints them as they are, and all 42 tests pass.",
            calls: &[],
            then: "Thanks. Add a regression test with three items of 0.10.",
        },
        DialogueStep {
            thinks: "",
            says: "I'll add it beside the other tests of the cart.",
            calls: &[(
                "Edit",
                r#"{"file_path":"/srv/shop/src/cart.rs","old_string":"mod tests {","new_string":"mod tests {\n    #[test]\n    fn three_dimes_are_thirty_cents() {\n        assert_eq!(total(&[dime(), dime(), dime()]), Cents(30));\n    }\n"}"#,
                "The file has been updated.",
            )],
            then: "",
        },
        text_step("Done: `three_dimes_are_thirty_cents` fails on the old code and passes now."),
    ],
};

pub const HELPERS: [DialogueScript; 2] = [
    DialogueScript {
        prompt: "List every caller of cart::total in the workspace and say whether it rounds the result.",
        steps: &[
            DialogueStep {
                thinks: "",
                says: "",
                calls: &[(
                    "Grep",
                    r#"{"pattern":"cart::total|total\\(","path":"."}"#,
                    "src/receipt.rs:14\nsrc/api/checkout.rs:31",
                )],
                then: "",
            },
            text_step("Two callers: receipt.rs rounds for display, api/checkout.rs does not."),
        ],
    },
    DialogueScript {
        prompt: "Read the tests about money and say which cases of rounding they miss.",
        steps: &[
            DialogueStep {
                thinks: "",
                says: "",
                calls: &[(
                    "Read",
                    r#"{"file_path":"/srv/shop/src/money.rs"}"#,
                    "#[test]\nfn one_item() { assert_eq!(sum(&[1.25]), 1.25); }",
                )],
                then: "",
            },
            text_step("No test has more than one item with a price that binary fractions cannot hold."),
        ],
    },
];

/// A prompt that contains personal data.
pub const SUPPORT: DialogueScript = DialogueScript {
    prompt: "Write a kind reply to this customer.",
    steps: &[text_step(
        "Thank you for writing to us. Your lamp is on its way, and the double charge is being refunded today.",
    )],
};

pub const LETTER: &str =
    "Anna Keller, anna.keller@example.com, +49 30 901820: my card 4111 1111 1111 1111 was charged twice.";

/// A prompt and an answer for each of the other providers.
pub const QUESTIONS: [DialogueScript; 4] = [
    DialogueScript {
        prompt: "Summarise this week's orders in one sentence.",
        steps: &[
            DialogueStep {
                thinks: "",
                says: "",
                calls: &[("query_orders", r#"{"week":47}"#, r#"{"orders":318,"revenue":"12403.50","returns":9}"#)],
                then: "",
            },
            text_step("318 orders brought in 12,403.50 this week, and 9 of them came back."),
        ],
    },
    DialogueScript {
        prompt: "Review the diff of the last commit.",
        steps: &[
            DialogueStep {
                thinks: "The diff touches the cart only.",
                says: "",
                calls: &[(
                    "shell",
                    r#"{"command":["git","show","--stat"]}"#,
                    " src/cart.rs | 9 +++++++--\n 1 file changed",
                )],
                then: "",
            },
            text_step("The change is sound; the new test would be clearer with named prices."),
        ],
    },
    DialogueScript {
        prompt: "Which of our product photos show a lamp?",
        steps: &[text_step("Photos 3, 7 and 12 show a lamp; in photo 7 it is switched on.")],
    },
    DialogueScript { prompt: "Translate `add to cart` into French.", steps: &[text_step("Ajouter au panier.")] },
];
