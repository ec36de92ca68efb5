//! The stages of the profile, and the metrics that tell of them. Names keep their meaning for ever,
//! as those of the other metrics do.

/// One stage of the profile: of each kind of request how many, and how long they took in all.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) at: &'static str,
    pub(super) count: &'static str,
    pub(super) seconds: &'static str,
    pub(super) help: &'static str,
}

/// All stages; a process has those of its kind.
pub(super) const STAGES: [Stage; 4] = [
    Stage {
        at: "kernel",
        count: "ariel_mount_answers",
        seconds: "ariel_mount_answer_seconds",
        help: "from a request of the kernel to its answer",
    },
    Stage {
        at: "server",
        count: "ariel_mount_server_answers",
        seconds: "ariel_mount_server_answer_seconds",
        help: "from a request to the server to its answer",
    },
    Stage {
        at: "clients",
        count: "ariel_server_answers",
        seconds: "ariel_server_answer_seconds",
        help: "from a client's request to its answer",
    },
    Stage {
        at: "steps",
        count: "ariel_server_steps",
        seconds: "ariel_server_step_seconds",
        help: "under the server's lock, in which nobody else is served",
    },
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::mounted::MOUNT;
    use super::super::table::SERVER;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_metric_has_a_name_of_its_own_and_is_documented() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/service.md");
        let docs = std::fs::read_to_string(docs).unwrap();
        let of_status = SERVER.iter().chain(&MOUNT).map(|metric| metric.name);
        let of_profile = STAGES.iter().flat_map(|stage| [stage.count, stage.seconds]);
        let names: Vec<&str> = of_status.chain(of_profile).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let missing: Vec<_> = names
            .into_iter()
            .filter(|name| !docs.contains(&format!("`{name}`")))
            .collect();
        assert!(missing.is_empty(), "not in docs/service.md: {missing:?}");
    }
}
