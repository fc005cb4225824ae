//! Whether a Redis server keeps what it counts: what was used of budgets is nowhere else.

/// How budgets can be lost on a server with this answer to `INFO`, each with the remedy.
pub fn budget_losses(info: &str) -> Vec<String> {
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim).unwrap_or_default()
    };
    let mut losses = Vec::new();
    if field("aof_enabled") == "0" {
        losses.push(
            "it writes no append-only file, so that its restart sets budgets back to its last snapshot or to zero: set \
             `appendonly yes`"
                .to_owned(),
        );
    }
    let policy = field("maxmemory_policy");
    if !matches!(field("maxmemory"), "" | "0") && !matches!(policy, "" | "noeviction") {
        losses.push(format!(
            "it evicts keys when its memory is full ({policy}), and budgets with them: set `maxmemory-policy noeviction`, and \
             keep caches on another server"
        ));
    }
    losses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_forget_budgets_are_found() {
        let info = |aof: &str, memory: &str, policy: &str| {
            let persistence =
                format!("# Persistence\r\nloading:0\r\naof_enabled:{aof}\r\naof_rewrite_in_progress:0\r\n");
            format!("# Memory\r\nmaxmemory:{memory}\r\nmaxmemory_policy:{policy}\r\n{persistence}")
        };
        for (info, words) in [
            (info("1", "0", "noeviction"), &[][..]),
            (info("1", "0", "allkeys-lru"), &[]),
            (info("0", "0", "noeviction"), &["appendonly yes"]),
            (info("1", "1000", "volatile-ttl"), &["volatile-ttl"]),
            (info("0", "1000", "allkeys-lru"), &["appendonly yes", "noeviction"]),
            // Another server with Redis's protocol, which says nothing of this.
            ("redis_version:7".to_owned(), &[]),
        ] {
            let found = budget_losses(&info);
            assert_eq!(found.len(), words.len(), "{info}: {found:?}");
            assert!(found.iter().zip(words).all(|(text, word)| text.contains(word)), "{found:?}");
        }
    }
}
