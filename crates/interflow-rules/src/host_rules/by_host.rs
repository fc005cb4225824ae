//! The rules of a program for each host, made on demand and cached.

use std::sync::Arc;

use hashlink::LruCache;
use interflow_types::Host;
use parking_lot::Mutex;

use super::HostRules;
use crate::compiled::program::RuleProgram;

/// Maximum number of cached per-host rule sets; the least recently used ones go.
const MAX_HOST_RULE_SETS: usize = 4096;

/// A program with the rule sets of the hosts that were asked for.
#[derive(Debug)]
pub(crate) struct RulesByHost {
    pub program: Arc<RuleProgram>,
    cache: Mutex<LruCache<Vec<u32>, Arc<HostRules>>>,
}

impl RulesByHost {
    pub fn new(program: Arc<RuleProgram>) -> Arc<Self> {
        Arc::new(Self { program, cache: Mutex::new(LruCache::new(MAX_HOST_RULE_SETS)) })
    }

    /// The rules that can match a host; `None` if there are none. Hosts with the same candidates share a rule set, so
    /// the cache is by candidates and not by host.
    pub fn rules_for(self: &Arc<Self>, host: &Host) -> Option<Arc<HostRules>> {
        let candidates = self.program.hosts.candidates(host);
        if candidates.is_empty() {
            return None;
        }
        let mut bound = self.cache.lock();
        if let Some(ready) = bound.get(&candidates) {
            return Some(Arc::clone(ready));
        }
        let ready = Arc::new(HostRules::new(Arc::clone(self), &candidates));
        bound.insert(candidates, Arc::clone(&ready));
        Some(ready)
    }

    /// Clears the per-host rule sets, which refer to this (a reference cycle).
    pub fn clear_cache(&self) {
        self.cache.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RulesConfig;
    use crate::files::sources::RuleFileSource;

    #[test]
    fn the_rules_of_a_busy_host_survive_a_crawl_of_many() {
        let hosts: Vec<String> = (0..MAX_HOST_RULE_SETS + 50).map(|i| format!("h{i}.test")).collect();
        let rule = |host: &String| format!("- name: {host}\n  when: {{host: {host}}}\n  then: {{tag: x}}\n");
        let text: String = std::iter::once("rules:\n".to_owned()).chain(hosts.iter().map(rule)).collect();
        let source = RuleFileSource::from_text("r.yaml", text);
        let program = RuleProgram::from_sources(vec![source], &RulesConfig::default(), Arc::default()).unwrap();
        let sets = RulesByHost::new(program);
        let rules_of = |host: &str| sets.rules_for(&Host::parse(host).unwrap()).unwrap();
        let busy = rules_of("h0.test");
        for (i, host) in hosts.iter().enumerate() {
            rules_of(host);
            if i % 1000 == 0 {
                assert!(Arc::ptr_eq(&busy, &rules_of("h0.test")), "after {i} others");
            }
        }
        assert_eq!(sets.cache.lock().len(), MAX_HOST_RULE_SETS);
        sets.clear_cache();
    }
}
