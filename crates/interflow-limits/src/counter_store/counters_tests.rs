//! Tests of the counters' arithmetic.

use proptest::prelude::*;

use super::super::BudgetPeriod;
use super::*;

const S: u64 = 1_000_000;

fn ask(counter: CounterLimit, cost: u64) -> CounterRequest {
    CounterRequest { rule: "r".into(), who: "w".into(), counter, cost, least: cost }
}

const fn level(level: f64) -> CounterValue {
    CounterValue { level, reserved: 0.0 }
}

fn counters() -> CounterTable {
    CounterTable::new(100, Duration::from_secs(60))
}

const fn requests(per_second: f64, burst: f64) -> CounterLimit {
    CounterLimit::Requests { per_second, burst }
}

#[test]
fn bucket_admits_its_burst_then_refills_at_its_rate() {
    let mut c = counters();
    let one = [ask(requests(2.0, 3.0), 1)];
    let passed = (0..5).filter(|_| c.take(&one, "", S).is_ok()).count();
    assert_eq!(passed, 3);
    assert_eq!(
        c.take(&one, "", S),
        Err(CounterRejection { index: 0, wait: Duration::from_millis(500), is_reserved: false })
    );
    assert_eq!(c.take(&one, "", S + S / 2), Ok(()));
    assert!(c.take(&one, "", S + S / 2).is_err());
}

#[test]
fn wall_clock_jump_does_not_affect_buckets_or_slots() {
    let mut c = counters();
    let at = |steady: u64, wall: u64| CounterTime { steady, wall };
    let both = [ask(requests(1.0, 1.0), 1), ask(CounterLimit::Slots { max: 1 }, 1)];
    let year = 365 * 86_400 * S;
    assert_eq!(c.take(&both, "a", at(10 * year, 10 * year)), Ok(()));
    for wall in [9 * year, 11 * year] {
        assert_eq!(c.take(&both, "b", at(10 * year, wall)).unwrap_err().index, 0);
    }
    c.commit(&both[1..], "a", &[0], Duration::ZERO, at(10 * year, 9 * year));
    assert_eq!(c.take(&both, "b", at(10 * year + S, 9 * year)), Ok(()), "it fills while the wall clock is behind");
}

#[test]
fn refusal_by_one_counter_charges_none() {
    let mut c = counters();
    let small = ask(CounterLimit::TokenBudget { max: 10, period: BudgetPeriod::Day }, 6);
    let both = [ask(requests(1.0, 100.0), 1), small.clone()];
    assert_eq!(c.take(&both, "", S), Ok(()));
    assert_eq!(c.take(&both, "", S).unwrap_err().index, 1);
    assert_eq!(c.read(&both, S), [level(1.0), CounterValue { level: 6.0, reserved: 6.0 }]);
}

#[test]
fn actual_usage_replaces_the_estimate_and_may_overdraw() {
    let mut c = counters();
    let tokens = [ask(CounterLimit::Tokens { per_second: 10.0, burst: 100.0 }, 40)];
    assert_eq!(c.take(&tokens, "", S), Ok(()));
    c.commit(&tokens, "", &[150], Duration::ZERO, S);
    assert_eq!(c.read(&tokens, S), [level(150.0)]);
    assert_eq!(c.take(&tokens, "", S).unwrap_err().wait, Duration::from_secs(9));
    c.commit(&tokens, "", &[0], Duration::ZERO, 20 * S);
    assert_eq!(c.take(&tokens, "", 20 * S), Ok(()));
}

#[test]
fn request_larger_than_the_bucket_is_admitted_when_full() {
    let mut c = counters();
    let huge = [ask(CounterLimit::Tokens { per_second: 1.0, burst: 10.0 }, 25)];
    assert_eq!(c.take(&huge, "", S), Ok(()));
    assert_eq!(c.take(&huge, "", S).unwrap_err().wait, Duration::from_secs(25));
}

#[test]
fn slots_are_released_on_commit_or_lease_expiry() {
    let mut c = counters();
    let slot = [ask(CounterLimit::Slots { max: 2 }, 1)];
    assert_eq!(c.take(&slot, "a", S), Ok(()));
    assert_eq!(c.take(&slot, "b", S), Ok(()));
    assert!(c.take(&slot, "c", S).is_err());
    c.commit(&slot, "a", &[1], Duration::ZERO, S);
    assert_eq!(c.take(&slot, "c", S), Ok(()));
    assert!(c.take(&slot, "d", 60 * S).is_err());
    assert_eq!(c.take(&slot, "d", 61 * S), Ok(()));
}

#[test]
fn budget_resets_at_its_period_boundary() {
    let mut c = counters();
    let money = [ask(CounterLimit::MoneyBudget { max: 10, period: BudgetPeriod::Day }, 10)];
    assert_eq!(c.take(&money, "", S), Ok(()));
    c.commit(&money, "", &[10], Duration::ZERO, S);
    assert_eq!(c.take(&money, "", 2 * S).unwrap_err().wait, Duration::from_secs(86_398));
    assert_eq!(c.take(&money, "", 86_400 * S), Ok(()));
    // What yesterday's request did not use is not credited to today's budget.
    c.commit(&money, "", &[0], Duration::from_secs(60), 86_430 * S);
    assert_eq!(c.read(&money, 86_430 * S), [CounterValue { level: 10.0, reserved: 10.0 }]);
}

#[test]
fn zero_cost_request_is_refused_when_the_budget_is_exhausted() {
    let mut c = counters();
    let spend = [ask(CounterLimit::MoneyBudget { max: 10, period: BudgetPeriod::Day }, 4)];
    assert_eq!(c.take(&spend, "", S), Ok(()));
    c.commit(&spend, "", &[10], Duration::ZERO, S);
    assert!(c.take(&[ask(CounterLimit::MoneyBudget { max: 10, period: BudgetPeriod::Day }, 0)], "", S).is_err());
}

#[test]
fn request_without_a_maximum_is_admitted_by_a_rest_and_keeps_others_out() {
    let mut c = counters();
    let counter = CounterLimit::MoneyBudget { max: 50, period: BudgetPeriod::Day };
    let open = [CounterRequest { least: 10, ..ask(counter, 100) }];
    let refused = |c: &mut CounterTable, asks: &[CounterRequest]| c.take(asks, "", S).unwrap_err();
    assert_eq!(c.take(&open, "", S), Ok(()));
    assert_eq!(c.read(&open, S), [CounterValue { level: 100.0, reserved: 100.0 }]);
    let reserved = CounterRejection { index: 0, wait: Duration::from_secs(1), is_reserved: true };
    assert_eq!(refused(&mut c, &open), reserved);
    assert_eq!(refused(&mut c, &[ask(counter, 1)]), reserved);
    assert!(!refused(&mut c, &[ask(counter, 51)]).is_reserved, "it never fits");
    assert_eq!(c.take(&[ask(counter, 0)], "", S), Ok(()), "one that costs nothing does not wait");
    c.commit(&open, "", &[40], Duration::ZERO, S);
    assert_eq!(c.read(&open, S), [level(40.0)]);
    assert_eq!(c.take(&open, "", S), Ok(()));
    c.commit(&open, "", &[9], Duration::ZERO, S);
    assert!(!refused(&mut c, &open).is_reserved, "49 of 50 are used");
}

#[test]
fn counters_for_client_supplied_names_are_bounded() {
    let mut c = CounterTable::new(50, Duration::from_secs(60));
    for i in 0..10_000u64 {
        let ask = CounterRequest { who: format!("w{i}").into(), ..ask(requests(1.0, 1.0), 1) };
        assert_eq!(c.take(&[ask], "", i), Ok(()));
        assert!(c.states.len() <= 50);
    }
}

#[test]
fn budgets_survive_a_restart() {
    let mut c = counters();
    let budget = [ask(CounterLimit::TokenBudget { max: 10, period: BudgetPeriod::Month }, 7)];
    assert_eq!(c.take(&budget, "", S), Ok(()));
    let mut next = counters();
    for (name, period, sum) in c.budgets() {
        next.restore(name.to_owned(), period, sum);
    }
    assert_eq!(next.read(&budget, S), [level(7.0)]);
}

proptest! {
    /// Whatever the arrival times, no more requests are admitted than burst plus refill.
    #[test]
    fn bucket_never_admits_more_than_burst_plus_refill(gaps in prop::collection::vec(0u64..500_000, 1..200)) {
        let mut c = counters();
        let one = [ask(requests(5.0, 4.0), 1)];
        let (mut now, mut passed) = (S, 0u32);
        for gap in gaps {
            now += gap;
            passed += u32::from(c.take(&one, "", now).is_ok());
            let most = 4.0 + 5.0 * (now - S) as f64 / 1e6;
            prop_assert!(f64::from(passed) <= most + 1e-6);
        }
    }

    /// Whatever requests are admitted and settled in whatever order: a budget is exceeded by less than one of them.
    #[test]
    fn budget_is_exceeded_by_one_request_at_most(
        steps in prop::collection::vec((any::<bool>(), 1u64..=100, 1u64..=100, any::<prop::sample::Index>()), 1..200),
    ) {
        let mut c = counters();
        let (max, mut spent, mut open) = (300, 0, Vec::<(CounterRequest, u64)>::new());
        for (begins, a, b, which) in steps {
            if begins {
                let counter = CounterLimit::TokenBudget { max, period: BudgetPeriod::Day };
                let ask = CounterRequest { least: a.min(b), ..ask(counter, a.max(b)) };
                if c.take(std::slice::from_ref(&ask), "", S).is_ok() {
                    open.push((ask, a));
                }
            } else if !open.is_empty() {
                let (ask, used) = open.swap_remove(which.index(open.len()));
                c.commit(&[ask], "", &[used], Duration::ZERO, S);
                spent += used;
            }
            let reserved: u64 = open.iter().map(|(ask, _)| ask.cost).sum();
            let asked = [ask(CounterLimit::TokenBudget { max, period: BudgetPeriod::Day }, 0)];
            let value = CounterValue { level: (spent + reserved) as f64, reserved: reserved as f64 };
            prop_assert_eq!(c.read(&asked, S), vec![value]);
            prop_assert!(spent + reserved < max + 100);
        }
    }

    /// Taking an estimate and settling it leaves exactly what was used.
    #[test]
    fn budget_equals_the_sum_of_committed_usage(uses in prop::collection::vec((0u64..1000, 0u64..1000), 0..50)) {
        let mut c = counters();
        let mut sum = 0;
        for (estimate, used) in uses {
            let a = [ask(CounterLimit::TokenBudget { max: 1 << 40, period: BudgetPeriod::Day }, estimate)];
            prop_assert_eq!(c.take(&a, "", S), Ok(()));
            c.commit(&a, "", &[used], Duration::ZERO, S);
            sum += used;
            prop_assert_eq!(c.read(&a, S), vec![level(sum as f64)]);
        }
    }
}
