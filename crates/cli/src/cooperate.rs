//! `ariel cooperate`: how the clients of a server lend blocks of their caches to each other.

use crate::args::{CooperateArgs, Cooperation};
use crate::control;
use crate::failure::Failure;
use crate::{show, status};
use clap::ValueEnum;
use serde_json::{Value, json};
use server::Server;
use std::process::ExitCode;

/// How the question begins that changes it.
pub(crate) const ASK: &str = "cooperate ";

pub(crate) fn cooperate(args: &CooperateArgs) -> Result<ExitCode, Failure> {
    if let Some(policy) = args.policy {
        let word = policy.to_possible_value();
        let word = word.as_ref().map_or("off", |word| word.get_name());
        status::ask(&format!("{ASK}{word}"), &args.target)?;
    }
    let found = status::ask("status", &args.target)?;
    match found["cooperation"]["policy"].as_str() {
        Some(policy) => show::print(policy),
        None => {
            let text = format!("{} is a mount: name its server", args.target);
            return Err(Failure::of("cooperate", text));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A server's answer to such a question.
pub(crate) fn answer(server: &Server, word: &str) -> Value {
    match Cooperation::from_str(word, false) {
        Ok(policy) => {
            server.cooperate(policy.into());
            json!({})
        }
        Err(_) => control::refusal(format_args!("a server does not know {word:?}")),
    }
}
