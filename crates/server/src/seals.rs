//! The seals that a lender believes: made with a secret that it shares with this server alone.
//!
//! Guarantees: the secrets of two lenders, and of two runs of the server, cannot be derived from
//! each other; so a machine that knows one can seal nothing for another.

use wire::{Elsewhere, LenderId, Outcome, Secret, ToClient};

/// The secret from which the lenders' secrets are made.
pub(crate) struct Seals(Secret);

impl Seals {
    pub(crate) fn new() -> Seals {
        Seals(net::entropy::secret())
    }

    fn secret_of(&self, lender: LenderId) -> Secret {
        net::seal(&self.0, &lender.to_le_bytes())
    }

    /// Puts secrets and seals where the machine has left room for them.
    pub(crate) fn put_into(&self, message: &mut ToClient) {
        match message {
            ToClient::Lend { lender, secret } => *secret = self.secret_of(*lender),
            ToClient::Reply { reply, .. } => {
                if let Outcome::Elsewhere(elsewhere) = &mut reply.outcome {
                    self.seal(elsewhere);
                }
            }
            ToClient::Take(handed) => self.seal(&mut handed.from),
            _ => {}
        }
    }

    fn seal(&self, elsewhere: &mut Elsewhere) {
        let secret = self.secret_of(elsewhere.lender);
        let text = elsewhere.capability.sealed_text();
        elsewhere.capability.seal = net::seal(&secret, &text);
    }
}
