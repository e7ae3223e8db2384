//! The spec and status of an Rds, read loosely.
//!
//! Not a rule. Must not know: how fields are judged. An absent field counts as the default in the schema.

use std::collections::BTreeMap;

use serde::Deserialize;

use objects::Meta;
use objects::scalar::{self, Listed, Scalar};

/// A database in the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(super) struct Rds {
    #[serde(deserialize_with = "objects::or_default")]
    pub(super) metadata: Meta,
    #[serde(deserialize_with = "scalar::map")]
    pub(super) spec: RdsSpec,
    #[serde(deserialize_with = "scalar::map")]
    pub(super) status: RdsStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(super) struct RdsSpec {
    pub(super) availabilityzone: Scalar,
    pub(super) backupkeepdays: Scalar,
    pub(super) backuprestoretime: Scalar,
    pub(super) backupstarttime: Scalar,
    pub(super) databases: Listed<Scalar>,
    pub(super) datastoretype: Scalar,
    pub(super) datastoreversion: Scalar,
    pub(super) endpoint: Scalar,
    pub(super) flavorref: Scalar,
    pub(super) hamode: Scalar,
    pub(super) hareplicationmode: Scalar,
    pub(super) password: Scalar,
    pub(super) port: Scalar,
    pub(super) region: Scalar,
    pub(super) securitygroup: Scalar,
    pub(super) subnet: Scalar,
    pub(super) users: Listed<RdsUser>,
    pub(super) volumesize: Scalar,
    pub(super) volumetype: Scalar,
    pub(super) vpc: Scalar,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(super) struct RdsUser {
    pub(super) name: Scalar,
    pub(super) host: Scalar,
    pub(super) password: Scalar,
    pub(super) privileges: Listed<Scalar>,
}

impl RdsUser {
    /// Returns the account: name and host.
    pub(super) fn account(&self) -> (&str, &str) {
        (self.name.look(), self.host.look())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(super) struct RdsStatus {
    pub(super) autopilot: Scalar,
    pub(super) id: Scalar,
    pub(super) ip: Scalar,
    pub(super) logs: Scalar,
    pub(super) reboot: Scalar,
    #[serde(rename = "status")]
    pub(super) phase: Scalar,
}

/// Returns the value, or the schema's default.
fn value_or<'v>(value: &'v Scalar, default: &'static str) -> &'v str {
    if value.is_present() { value.look() } else { default }
}

impl RdsSpec {
    pub(super) fn engine(&self) -> &str {
        value_or(&self.datastoretype, "MySQL")
    }

    pub(super) fn version(&self) -> &str {
        value_or(&self.datastoreversion, "8.0")
    }

    pub(super) fn port(&self) -> &str {
        value_or(&self.port, "3306")
    }

    pub(super) fn flavor(&self) -> &str {
        value_or(&self.flavorref, "rds.mysql.c2.medium")
    }

    pub(super) fn zones(&self) -> Vec<&str> {
        value_or(&self.availabilityzone, "eu-de-01").split(',').map(str::trim).collect()
    }

    pub(super) fn window(&self) -> &str {
        value_or(&self.backupstarttime, "01:00-02:00")
    }

    /// Returns the days for which backups are kept; `None`: the value is not a number.
    pub(super) fn backup_days(&self) -> Option<i64> {
        if self.backupkeepdays.is_present() { self.backupkeepdays.number() } else { Some(12) }
    }

    /// Returns the size in GB; `None`: the value is not a number.
    pub(super) fn size(&self) -> Option<i64> {
        if self.volumesize.is_present() { self.volumesize.number() } else { Some(40) }
    }

    pub(super) fn is_highly_available(&self) -> bool {
        self.hamode.look() == "Ha"
    }

    /// Returns the users by name and host: two users of one name are two accounts.
    pub(super) fn accounts(&self) -> BTreeMap<(&str, &str), &RdsUser> {
        self.users.all().iter().map(|it| (it.account(), it)).collect()
    }

    /// Returns whether the root password is replaced by a mask.
    pub(super) fn is_masked(&self) -> bool {
        let text = self.password.look();
        !text.is_empty() && text.bytes().all(|c| matches!(c, b'x' | b'*'))
    }
}

impl RdsStatus {
    pub(super) fn is_active(&self) -> bool {
        self.phase.look() == "ACTIVE"
    }

    /// Returns whether the status will not become ACTIVE by itself.
    pub(super) fn is_stuck(&self) -> bool {
        let status = self.phase.look();
        ["FAILED", "FROZEN", "STORAGE"].iter().any(|it| status.starts_with(it))
    }

    /// Returns the status for messages: "BUILD", or not set.
    pub(super) fn description(&self) -> String {
        if self.phase.is_empty() { "not set".to_owned() } else { super::shown(self.phase.look()) }
    }
}
