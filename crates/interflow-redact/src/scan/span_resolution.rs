//! Resolves overlapping findings so that every byte covered by any of them remains covered.

use crate::detect::Finding;

/// A finding wins over a longer one if its confidence is higher by this many percent.
const CONFIDENCE_MARGIN: i32 = 35;

/// Sorts the findings and removes overlaps: of two, the longer wins unless the shorter has a much higher confidence;
/// what the loser covered beyond the winner remains covered by the rest of it.
///
/// Findings that do not count (low confidence, on an ignore list, condition not met) must be removed before, or they
/// would remove others.
pub fn resolve_overlaps(findings: &mut Vec<Finding>) {
    if findings.len() < 2 {
        return;
    }
    findings.sort_unstable_by_key(|f| (f.start, f.end));
    let mut out = Vec::with_capacity(findings.len());
    let mut cluster: Vec<Finding> = Vec::new();
    let mut reach = 0;
    for finding in findings.drain(..) {
        if finding.start >= reach {
            resolve_cluster(&mut cluster, &mut out);
        }
        reach = reach.max(finding.end);
        cluster.push(finding);
    }
    resolve_cluster(&mut cluster, &mut out);
    *findings = out;
}

/// Resolves findings that overlap directly or transitively.
fn resolve_cluster(cluster: &mut Vec<Finding>, out: &mut Vec<Finding>) {
    if cluster.len() > 1 {
        // From the longest on: each further finding only gets what is not covered yet.
        cluster.sort_unstable_by_key(|f| std::cmp::Reverse(rank(f)));
        let mut winners = Vec::with_capacity(cluster.len());
        cluster.drain(..).for_each(|f| insert_finding(&mut winners, f));
        out.append(&mut winners);
    } else {
        out.append(cluster);
    }
}

/// The order of insertion: longest first, then by confidence, start and kind, so that the result is deterministic.
fn rank(f: &Finding) -> (usize, u8, std::cmp::Reverse<usize>, std::cmp::Reverse<u8>) {
    (f.len(), f.confidence, std::cmp::Reverse(f.start), std::cmp::Reverse(f.kind as u8))
}

/// Inserts a finding into `kept`, which is sorted and free of overlaps.
fn insert_finding(kept: &mut Vec<Finding>, finding: Finding) {
    let from = kept.partition_point(|k| k.end <= finding.start);
    let to = kept.partition_point(|k| k.start < finding.end);
    if from == to {
        kept.insert(from, finding);
        return;
    }
    // With several overlapping winners, confidence is not compared; the gaps between them are enough.
    if let [winner] = &kept[from..to]
        && i32::from(finding.confidence) - i32::from(winner.confidence) >= CONFIDENCE_MARGIN
    {
        // The shorter one has a much higher confidence: the longer one keeps the rest on both sides.
        let winner = *winner;
        let rest = Finding { end: finding.start, ..winner };
        let right = Finding { start: finding.end.min(winner.end), ..winner };
        let middle = Finding { start: finding.start, end: finding.end, ..finding };
        let pieces = [rest, middle, right].into_iter().filter(|p| p.start < p.end);
        kept.splice(from..to, pieces);
        return;
    }
    // The others keep what they have; this one fills the gaps, so that no byte becomes uncovered.
    let mut gaps = Vec::new();
    let mut at = finding.start;
    for k in &kept[from..to] {
        if at < k.start {
            gaps.push(Finding { start: at, end: k.start, ..finding });
        }
        at = at.max(k.end);
    }
    if at < finding.end {
        gaps.push(Finding { start: at, ..finding });
    }
    for gap in gaps {
        let i = kept.partition_point(|k| k.start < gap.start);
        kept.insert(i, gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use proptest::prelude::*;

    fn finding(start: usize, end: usize, kind: Kind, confidence: u8) -> Finding {
        Finding { start, end, kind, confidence, rule: 0, evidence: None }
    }

    #[test]
    fn longer_finding_wins_and_the_remainder_stays_covered() {
        let mut f = vec![finding(0, 10, Kind::Person, 80), finding(5, 25, Kind::Url, 80)];
        resolve_overlaps(&mut f);
        assert_eq!(f, [finding(0, 5, Kind::Person, 80), finding(5, 25, Kind::Url, 80)]);
    }

    #[test]
    fn much_more_confident_short_finding_is_kept() {
        let mut f = vec![finding(0, 30, Kind::Location, 40), finding(10, 20, Kind::CreditCard, 98)];
        resolve_overlaps(&mut f);
        assert_eq!(f.len(), 3);
        assert_eq!(f[1].kind, Kind::CreditCard);
    }

    proptest! {
        #[test]
        fn overlap_resolution_keeps_coverage_without_overlaps(raw in prop::collection::vec((0usize..60, 1usize..20, 0u8..100, 0usize..10), 0..12)) {
            let mut findings: Vec<_> = raw.iter().map(|(s, l, c, k)| finding(*s, s + l, Kind::ALL[*k], *c)).collect();
            let covered = |f: &[Finding]| (0..100).filter(|at| f.iter().any(|f| (f.start..f.end).contains(at))).collect::<Vec<usize>>();
            let before = covered(&findings);
            resolve_overlaps(&mut findings);
            prop_assert_eq!(covered(&findings), before);
            prop_assert!(findings.windows(2).all(|w| w[0].end <= w[1].start));
            prop_assert!(findings.iter().all(|f| !f.is_empty()));
        }
    }
}
