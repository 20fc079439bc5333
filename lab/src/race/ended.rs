//! An arm that ended by itself when generations enough had been whole: the race ended there, and what the others did
//! until then is judged, as of a race that was interrupted. Of an arm that does not last nothing is called.

use crate::result::{EndedArm, RaceResult};
use laneway_stats::Verdict;
use laneway_stats::pairs::Doubt;

/// Reports in the result that an arm ended, and takes the verdicts back that it has a part in.
pub(super) fn refuse(result: &mut RaceResult) {
    let Some(EndedArm { arm, generation, seconds, why }) = &result.ended else { return };
    let name = result.arms.get(*arm).map_or("an arm", |arm| arm.name.as_str());
    result.too_few.push(format!(
        "{name} ended in generation {generation}, {seconds:.0} s after the first began, and the race with it; nothing of it \
         has a verdict: {why}"
    ));
    for finding in result.findings.iter_mut().filter(|finding| [finding.arm, 0].contains(arm)) {
        finding.judgement.verdict = Verdict::Inconclusive;
        finding.judgement.doubt = Some(Doubt::Ended);
    }
}

/// What to say of a demand on one of these arms, if it was that.
pub(super) fn sentence(
    result: &RaceResult,
    mut arms: impl Iterator<Item = usize>,
) -> Option<String> {
    let ended = result.ended.as_ref()?;
    let generation = ended.generation;
    let name = &result.arms.get(ended.arm)?.name;
    let is_it = arms.any(|arm| arm == ended.arm);
    is_it.then(|| format!("{name} ended in generation {generation}, in the middle of the race"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;

    #[test]
    fn of_an_arm_that_ended_nothing_has_a_verdict_and_the_others_keep_theirs() {
        let without = |arm| {
            let mut result = report::example();
            let before = result.findings.clone();
            let why = "arm `it`: it was killed by signal 11; it printed nothing".to_owned();
            result.ended = Some(EndedArm { arm, generation: 7, seconds: 41.5, why });
            refuse(&mut result);
            for (finding, before) in result.findings.iter().zip(&before) {
                match arm == 0 || finding.arm == arm {
                    true => assert_eq!(finding.judgement.doubt, Some(Doubt::Ended)),
                    false => assert_eq!(finding.judgement, before.judgement),
                }
            }
            result
        };
        without(0);
        let result = without(4);
        assert!(result.findings.iter().any(|f| f.judgement.verdict != Verdict::Inconclusive));
        let why = result.too_few.last().expect("a reason is given");
        assert!(why.starts_with("xdp ended in generation 7, 42 s after the first"), "{why}");
        assert!(why.ends_with("signal 11; it printed nothing"), "{why}");
        assert!(sentence(&result, [0, 4].into_iter()).is_some());
        assert_eq!(sentence(&result, [0, 3].into_iter()), None);
    }
}
