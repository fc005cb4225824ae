//! The servers of resources, as they listed them in a session.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::protocol::uri_template::UriTemplate;

/// Bound on listed resources that a session remembers.
const MAX_RESOURCES: usize = 10_000;
/// Bound on listed templates that a session remembers; each is compared with the URI of a resource that was not listed.
const MAX_TEMPLATES: usize = 1_000;

#[derive(Default)]
pub(crate) struct ResourceOwners {
    /// By URI as listed.
    resources: Mutex<HashMap<String, Arc<str>>>,
    /// As listed.
    templates: Mutex<Vec<(UriTemplate, Arc<str>)>>,
}

impl ResourceOwners {
    /// Remembers that a server listed a resource.
    pub fn add_resource(&self, uri: &str, server: &Arc<str>) {
        let mut resources = self.resources.lock();
        if resources.len() < MAX_RESOURCES || resources.contains_key(uri) {
            resources.insert(uri.to_owned(), Arc::clone(server));
        }
    }

    /// Remembers that a server listed a template.
    pub fn add_template(&self, template: &str, server: &Arc<str>) {
        let template = UriTemplate::parse(template);
        let mut templates = self.templates.lock();
        let is_known = templates.iter().any(|(known, owner)| *known == template && owner == server);
        if !is_known && templates.len() < MAX_TEMPLATES {
            templates.push((template, Arc::clone(server)));
        }
    }

    /// The server whose template a URI fits: of several that of the most specific template, and none if two servers
    /// have equally specific ones.
    pub fn of_template(&self, uri: &str) -> Option<Arc<str>> {
        let templates = self.templates.lock();
        let fitting = || templates.iter().filter(|(template, _)| template.matches(uri));
        let most = fitting().map(|(template, _)| template.specificity()).max()?;
        let mut owners = fitting().filter(|(template, _)| template.specificity() == most).map(|(_, owner)| owner);
        let owner = owners.next()?;
        owners.all(|other| other == owner).then(|| Arc::clone(owner))
    }

    /// The server of a resource or a template by which an argument is to be completed; none if two servers listed the
    /// same template.
    pub fn of_reference(&self, uri: &str) -> Option<Arc<str>> {
        let templates = self.templates.lock();
        let mut owners = templates.iter().filter(|(template, _)| template.text == uri).map(|(_, owner)| owner);
        if let Some(owner) = owners.next() {
            return owners.all(|other| other == owner).then(|| Arc::clone(owner));
        }
        drop(templates);
        self.of_resource(uri).or_else(|| self.of_template(uri))
    }

    /// Whether a server listed a resource or a template just so: it tells no server anything new.
    pub fn is_listed(&self, uri: &str) -> bool {
        let is_template = || self.templates.lock().iter().any(|(template, _)| template.text == uri);
        self.resources.lock().contains_key(uri) || is_template()
    }

    /// The server that listed a resource.
    pub fn of_resource(&self, uri: &str) -> Option<Arc<str>> {
        self.resources.lock().get(uri).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_belongs_to_the_server_with_the_most_specific_template() {
        let owners = ResourceOwners::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        for (template, server) in [("file:///{x}", &a), ("file:///home/{x}", &b), ("db://{t}", &a), ("db://{u}", &b)] {
            owners.add_template(template, server);
        }
        assert_eq!(owners.of_template("file:///etc/hosts"), Some(a));
        assert_eq!(owners.of_template("file:///home/anna"), Some(b));
        assert_eq!(owners.of_template("db://users"), None, "two servers have it");
        assert_eq!(owners.of_template("http://x/"), None);
    }
}
