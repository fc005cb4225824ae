//! Templates of resource URIs (RFC 6570), as far as it takes to tell whose resource a URI is: what is between their
//! expressions has to be in the URI, in this order.

/// A template, divided at its expressions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UriTemplate {
    /// As it was listed.
    pub text: String,
    /// What is before the first expression, between two, and after the last; only the first if there is none.
    literals: Vec<String>,
}

impl UriTemplate {
    pub fn parse(template: &str) -> Self {
        let (mut literals, mut rest) = (Vec::new(), template);
        while let Some((before, after)) = rest.split_once('{') {
            // Without its end it is not an expression.
            let Some((_, after)) = after.split_once('}') else { break };
            literals.push(before.to_owned());
            rest = after;
        }
        literals.push(rest.to_owned());
        Self { text: template.to_owned(), literals }
    }

    /// How much of a URI the template determines, in bytes: of several that match, the one with most is meant.
    pub fn specificity(&self) -> usize {
        self.literals.iter().map(String::len).sum()
    }

    pub fn matches(&self, uri: &str) -> bool {
        let [first, middle @ .., last] = self.literals.as_slice() else {
            return self.literals.first().is_some_and(|only| only == uri);
        };
        let Some(mut rest) = uri.strip_prefix(first.as_str()).and_then(|rest| rest.strip_suffix(last.as_str())) else {
            return false;
        };
        for literal in middle {
            let Some(at) = rest.find(literal.as_str()) else { return false };
            rest = rest.get(at + literal.len()..).unwrap_or_default();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_belongs_to_the_template_whose_literals_it_has_in_order() {
        for (template, uri, matches) in [
            ("file:///{path}", "file:///a/b", true),
            ("file:///{path}", "http:///a", false),
            ("users://{id}/profile", "users://7/profile", true),
            ("users://{id}/profile", "users://7/photo", false),
            ("x://{a}/b/{c}/d", "x://1/b/2/d", true),
            ("x://{a}/b/{c}/d", "x://1/c/2/d", false),
            ("x://{a}{?q,r}", "x://1?q=2", true),
            ("x://list", "x://list", true),
            ("x://list", "x://lists", false),
            ("x://{broken", "x://{broken", true),
            ("aba{x}aba", "aba", false),
        ] {
            assert_eq!(UriTemplate::parse(template).matches(uri), matches, "{template} {uri}");
        }
        assert!(UriTemplate::parse("file:///home/{x}").specificity() > UriTemplate::parse("file:///{x}").specificity());
    }
}
