//! Validated settings.
//!
//! Owns: what the values of a settings file mean, and the errors in them; `file` has the form. Must not know: where the text came
//! from (`reload.rs` reads files).

mod file;

use std::collections::{BTreeMap, BTreeSet};

use crate::galera::adopt::{Adoption, BadSelector};
use crate::mode::Mode;
use crate::pages::Pages;

pub use file::schema;
use file::{FailurePolicy, SettingsFile};

/// The names that a settings file may use.
#[derive(Clone, Debug, Default)]
pub struct KnownNames {
    pub rules: Vec<&'static str>,
    /// The names of packs, each with the ids of its rules.
    pub packs: Vec<(&'static str, Vec<&'static str>)>,
}

/// What an administrator can choose. Every setting has a safe default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The selectors of the pod templates that belong to Galera clusters.
    pub adoption: Adoption,
    modes: BTreeMap<String, Mode>,
    /// The mode of rules that `modes` does not name.
    mode: Option<Mode>,
    /// The place where the user of a refused request finds a rule's page.
    pub pages: Pages,
    /// Whether pods of members are refused while no guard can inject them.
    pub injection_fails: bool,
    /// The timeout of the webhooks that refuse if the guard does not answer; `None`: the default.
    pub timeout_seconds: Option<u8>,
    /// Packs that are switched off. Their rules are off in `modes`, too.
    without: BTreeSet<&'static str>,
    /// The accounts of the operators of the pack rds; empty: those with a usual name.
    rds_operators: Vec<String>,
    /// The accounts of mariadb-operators, whose writes to the clusters that they drive are exempt.
    mariadb_operators: Vec<String>,
    /// The guard's own user name at the API server: its writes are exempt.
    pub own_user: Option<String>,
    /// Files that `gatera check` leaves out, as patterns of a .gitignore. The guard has no use for them.
    pub exclude: Vec<String>,
}

impl Settings {
    /// Returns whether this pack is switched off.
    pub fn is_without(&self, pack: &str) -> bool {
        self.without.contains(pack)
    }

    /// Returns the mode of a rule, which the label of a namespace can make milder.
    pub fn mode(&self, rule: &str) -> Mode {
        self.modes.get(rule).copied().unwrap_or(self.default_mode())
    }

    /// Returns the mode of rules without one of their own.
    pub fn default_mode(&self) -> Mode {
        self.mode.unwrap_or(Mode::Enforce)
    }

    /// Returns the new settings, but with the adoption and the user name of these: a new adoption counts only once there is a
    /// view of what it selects.
    #[must_use]
    pub fn updated_by(&self, new: &Self) -> Self {
        Self { adoption: self.adoption.clone(), own_user: self.own_user.clone(), ..new.clone() }
    }

    /// Returns these settings with another adoption, for a view that holds what it selects.
    #[must_use]
    pub fn with_adoption(&self, adoption: Adoption) -> Self {
        Self { adoption, ..self.clone() }
    }

    /// Returns these settings in another mode; rules with a mode of their own keep it.
    #[must_use]
    pub fn with_mode(&self, mode: Mode) -> Self {
        Self { mode: Some(mode), ..self.clone() }
    }

    /// Returns these settings with each rule in the stricter of both modes, and with only those files left out that both leave
    /// out. `rules` are the ids that exist.
    #[must_use]
    pub fn no_milder_than(&self, others: &Self, rules: &[&str]) -> Self {
        let stricter = |rule: &&str| ((*rule).to_owned(), self.mode(rule).max(others.mode(rule)));
        // A pattern with `!` reverses earlier ones, so the patterns of different lists cannot be combined.
        let re_includes = |it: &Self| it.exclude.iter().any(|pattern| pattern.starts_with('!'));
        let exclude = if self.exclude != others.exclude && (re_includes(self) || re_includes(others)) {
            Vec::new()
        } else {
            self.exclude.iter().filter(|it| others.exclude.contains(it)).cloned().collect()
        };
        Self { modes: rules.iter().map(stricter).collect(), exclude, ..self.clone() }
    }

    /// Returns these settings with the guard's own user name.
    #[must_use]
    pub fn with_own_user(&self, user: &str) -> Self {
        Self { own_user: Some(user.to_owned()), ..self.clone() }
    }

    /// Returns whether this user is the guard itself.
    pub fn is_own(&self, user: &str) -> bool {
        !user.is_empty() && self.own_user.as_deref() == Some(user)
    }

    /// Returns whether this user is an operator of the pack rds. If none is set, every ServiceAccount with a usual name is one.
    pub fn is_rds_operator(&self, user: &str) -> bool {
        if !self.rds_operators.is_empty() {
            return self.rds_operators.iter().any(|operator| operator == user);
        }
        let name = account(user).map(|(_, name)| name);
        name.is_some_and(|it| it == "rdsoperator" || it.contains("otc-rds-operator"))
    }

    /// Returns whether accounts of mariadb-operators are known.
    pub fn knows_mariadb_operators(&self) -> bool {
        !self.mariadb_operators.is_empty()
    }

    /// Returns whether this user is a mariadb-operator.
    pub fn is_mariadb_operator(&self, user: &str) -> bool {
        self.mariadb_operators.iter().any(|operator| operator == user)
    }

    pub fn read(yaml: &str, names: &KnownNames) -> Result<Self, Error> {
        let options = serde_saphyr::options! { with_snippet: false };
        let file: SettingsFile = serde_saphyr::from_str_with_options(yaml, options)
            .map_err(|error| Error::Form(error.to_string()))?;
        let mut settings = Self::default();
        let chosen = Adoption::from_texts(file.adopt.iter().map(|text| &**text))?;
        settings.adoption = match file.adopt_defaults {
            None | Some(true) => Adoption::default().and(chosen),
            Some(false) if chosen.selectors().is_empty() => return Err(Error::AdoptsNothing),
            Some(false) => chosen,
        };
        settings.injection_fails = file.injection.failure_policy == FailurePolicy::Fail;
        let seconds = file.webhooks.timeout_seconds;
        settings.timeout_seconds = seconds.map(|it| timeout(it).ok_or(Error::Timeout(it))).transpose()?;
        if let Some(mode) = file.mode {
            settings.mode = Some(Mode::read(&mode).ok_or(Error::UnknownDefault(mode))?);
        }
        if let Some(pages) = file.pages {
            settings.pages = Pages::read(&pages).ok_or(Error::Pages(pages))?;
        }
        settings.exclude = file.exclude;
        settings.rds_operators = file.rds.operators;
        settings.rds_operators.extend(file.rds.operator);
        settings.mariadb_operators = file.mariadb.operators;
        for (section, operators) in
            [("rds", &settings.rds_operators), ("mariadb", &settings.mariadb_operators)]
        {
            if let Some(user) = operators.iter().find(|it| account(it).is_none()) {
                return Err(Error::Operator { section, user: user.clone() });
            }
        }
        for (rule, mode) in file.modes {
            if !names.rules.contains(&&*rule) {
                return Err(Error::UnknownRule(rule));
            }
            settings.modes.insert(rule.clone(), Mode::read(&mode).ok_or(Error::UnknownMode { rule, mode })?);
        }
        for (name, on) in file.packs {
            let known = || names.packs.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            let (pack, rules) = names
                .packs
                .iter()
                .find(|(pack, _)| *pack == name)
                .ok_or_else(|| Error::UnknownPack { name, known: known() })?;
            if !on {
                settings.without.insert(pack);
                settings.modes.extend(rules.iter().map(|rule| ((*rule).to_owned(), Mode::Off)));
            }
        }
        Ok(settings)
    }
}

/// Returns namespace and name of `system:serviceaccount:NAMESPACE:NAME`.
fn account(user: &str) -> Option<(&str, &str)> {
    let account = user.strip_prefix("system:serviceaccount:").and_then(|it| it.split_once(':'));
    account
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains([':', ' ']))
}

/// Returns the seconds if the API server accepts them.
fn timeout(seconds: i64) -> Option<u8> {
    u8::try_from(seconds).ok().filter(|seconds| (1..=30).contains(seconds))
}

/// The reason why a settings file is not valid.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not have the form of settings.
    #[error("the settings cannot be read: {0}")]
    Form(String),
    /// A selector cannot be used for adoption.
    #[error("adopt")]
    Adopt(#[from] BadSelector),
    #[error(
        "adoptDefaults: false leaves nothing to adopt; write selectors in adopt, or leave adoptDefaults out"
    )]
    AdoptsNothing,
    /// `modes` names a rule that does not exist.
    #[error("modes: there is no rule {0}; `gatera explain` lists them")]
    UnknownRule(String),
    /// `packs` names a pack that does not exist.
    #[error("packs: there is no pack {name:?}; there are {known}")]
    UnknownPack { name: String, known: String },
    /// The name is not that of a ServiceAccount.
    #[error("{section}: an operator cannot be {user:?}; write system:serviceaccount:NAMESPACE:NAME")]
    Operator { section: &'static str, user: String },
    /// The API server would not accept the timeout.
    #[error("webhooks: timeoutSeconds cannot be {0}; choose 1 to 30")]
    Timeout(i64),
    /// The value of `mode` is not a mode.
    #[error("mode cannot be {0:?}; choose enforce, warn, audit or off")]
    UnknownDefault(String),
    /// The place of the pages is not valid.
    #[error("pages cannot be {0:?}; write NAMESPACE/NAME of a ConfigMap")]
    Pages(String),
    /// A value in `modes` is not a mode.
    #[error("modes: {rule} cannot be {mode:?}; choose enforce, warn, audit or off")]
    UnknownMode { rule: String, mode: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rules: &[&'static str]) -> KnownNames {
        KnownNames { rules: rules.to_vec(), packs: vec![("wordpress", vec!["W01"])] }
    }

    #[test]
    fn selectors_are_added_to_the_defaults() {
        let adopted = |yaml: &str| Settings::read(yaml, &KnownNames::default()).unwrap().adoption;
        let defaults = Adoption::default();
        let maria = Adoption::from_texts(["app=maria"]).unwrap();
        assert_eq!(adopted("{}"), defaults);
        assert_eq!(adopted("adopt: [app=maria]"), defaults.clone().and(maria.clone()));
        assert_eq!(adopted("adopt: [gatera.dev/cluster]"), defaults, "no selector counts twice");
        assert_eq!(adopted("{adopt: [app=maria], adoptDefaults: false}"), maria);
    }

    #[test]
    fn settings_are_read_or_refused_with_the_reason() {
        let settings = Settings::read("adopt: ['app=db']\nmodes: {G11: warn}\n", &names(&["G11"])).unwrap();
        assert_eq!((settings.mode("G11"), settings.mode("G01")), (Mode::Warn, Mode::Enforce));
        let settings =
            Settings::read("mode: warn\nmodes: {G11: enforce}\npages: gatera/rules", &names(&["G11"]))
                .unwrap();
        assert_eq!((settings.mode("G11"), settings.mode("G01")), (Mode::Enforce, Mode::Warn));
        assert_eq!(Settings::read("mode: off", &KnownNames::default()).unwrap().mode("G01"), Mode::Off);
        let without =
            Settings::read("packs: {wordpress: false}\nmodes: {G11: warn}", &names(&["G11"])).unwrap();
        assert_eq!((without.mode("W01"), without.mode("G01")), (Mode::Off, Mode::Enforce));
        assert!(without.is_without("wordpress"));
        assert_eq!(Some(&settings.pages), Pages::read("gatera/rules").as_ref());
        for (yaml, words) in [
            ("modes: {G99: warn}", "there is no rule G99"),
            ("modes: {G11: maybe}", "G11 cannot be \"maybe\"; choose enforce, warn, audit or off"),
            ("moed: {}", "moed"),
            ("adoptDefaults: false", "leaves nothing to adopt"),
            ("packs: {other: false}", "there is no pack \"other\"; there are "),
            ("packs: {wordpress: perhaps}", "invalid boolean at line 1, column 20"),
            ("mode: {}", "expected string scalar at line 1, column 7"),
            ("mode: maybe", "mode cannot be \"maybe\"; choose enforce, warn, audit or off"),
            ("pages: a b/c", "pages cannot be \"a b/c\"; write NAMESPACE/NAME of a ConfigMap"),
            ("injection: {failurePolicy: Perhaps}", "Perhaps"),
            (
                "rds: {operators: [rdsoperator]}",
                "rds: an operator cannot be \"rdsoperator\"; write system:serviceaccount:",
            ),
            ("rds: {operator: a}", "rds: an operator cannot be \"a\"; write system:serviceaccount:"),
            (
                "mariadb: {operators: [a]}",
                "mariadb: an operator cannot be \"a\"; write system:serviceaccount:",
            ),
            ("webhooks: {timeoutSeconds: 31}", "timeoutSeconds cannot be 31; choose 1 to 30"),
            ("adopt: ['a notin (b)']", "adopt"),
        ] {
            let error = Settings::read(yaml, &names(&["G11"])).unwrap_err().to_string();
            assert!(error.contains(words), "{yaml}: {error}");
        }
    }

    #[test]
    fn the_operators_of_rds_are_those_in_the_settings_or_else_those_with_a_usual_name() {
        let user = |name: &str| format!("system:serviceaccount:otc:{name}");
        let settings = Settings::default();
        // The last two are the names in the operator's own chart, for two names of the release.
        let usual = ["rdsoperator", "otc-rds-operator", "rdsoperator-otc-rds-operator"].map(user);
        assert!(usual.iter().all(|it| settings.is_rds_operator(it)));
        let other = user("databases");
        for user in [&*other, "rdsoperator", "x:rdsoperator", "system:serviceaccount:a:b:rdsoperator", ""] {
            assert!(!settings.is_rds_operator(user), "{user}");
        }
        for (yaml, both) in [
            (format!("rds: {{operator: '{other}'}}"), false),
            (format!("rds: {{operators: ['{other}', '{}']}}", usual[0]), true),
        ] {
            let settings = Settings::read(&yaml, &KnownNames::default()).unwrap();
            assert!(settings.is_rds_operator(&other) && !settings.is_rds_operator(&usual[1]), "{yaml}");
            assert_eq!(settings.is_rds_operator(&usual[0]), both, "{yaml}");
        }
    }

    #[test]
    fn the_stricter_of_two_counts_for_each_rule() {
        let read = |yaml: &str| Settings::read(yaml, &names(&["G01", "G02", "G03"])).unwrap();
        let both = read("mode: warn\nmodes: {G01: off}")
            .no_milder_than(&read("modes: {G02: audit, G03: off}"), &["G01", "G02", "G03"]);
        assert_eq!(
            ["G01", "G02", "G03"].map(|rule| both.mode(rule)),
            [Mode::Enforce, Mode::Warn, Mode::Warn]
        );
        let excludes = |mine: &str, theirs: &str| read(mine).no_milder_than(&read(theirs), &[]).exclude;
        assert_eq!(excludes("exclude: [a, b]", "exclude: [b, c]"), ["b"]);
        let order = "exclude: ['*.yaml', '!prod.yaml']";
        assert_eq!(excludes(order, order), ["*.yaml", "!prod.yaml"]);
        assert!(excludes("exclude: ['*.yaml']", order).is_empty(), "prod.yaml was judged before");
        // A pack that is turned off is milder as well.
        let off = Settings::read("packs: {wordpress: false}", &names(&[])).unwrap();
        assert_eq!(off.no_milder_than(&Settings::default(), &["W01"]).mode("W01"), Mode::Enforce);
    }

    #[test]
    fn settings_that_are_read_again_keep_the_adoption_and_the_guards_user() {
        let now = Settings { own_user: Some("us".into()), ..Settings::default() };
        let new = Settings::read(
            "adopt: ['app=db']\nmodes: {G11: warn}\ninjection: {failurePolicy: Fail}\nwebhooks: {timeoutSeconds: 9}",
            &names(&["G11"]),
        );
        let new = new.unwrap();
        let first = now.updated_by(&new);
        assert_eq!((first.mode("G11"), &first.adoption), (Mode::Warn, &now.adoption));
        assert_eq!((first.injection_fails, first.timeout_seconds), (true, Some(9)));
        let then = first.with_adoption(new.adoption.clone());
        assert_eq!((then.mode("G11"), &then.adoption), (Mode::Warn, &new.adoption));
        assert!(then.is_own("us"));
    }
}
