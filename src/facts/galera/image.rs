//! Image references: the vendor of the server, its series, and whether the reference can change by itself.
//!
//! A tag is only text. Of unknown servers and unknown series nothing is guessed.

use std::fmt;

/// The parts of a reference such as `registry:5000/library/mariadb:10.11@sha256:…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// Registry and path, without tag and digest.
    pub repository: &'a str,
    /// The text after the colon.
    pub tag: Option<&'a str>,
    /// The text after the `@`.
    pub digest: Option<&'a str>,
}

/// The vendor of a server. Data directories of one vendor do not fit another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the vendor of its name")]
pub enum Vendor {
    MariaDb,
    MySql,
    Percona,
}

/// A series, such as `10.11`: within a series, data files and state transfers stay compatible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series(pub u32, pub u32);

/// A change from one series to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionChange {
    Same,
    /// A change to the next series, or to the next one with long support.
    Up,
    /// A change to a later series than that; this series must come first.
    Skips(Series),
    Down,
}

impl<'a> Image<'a> {
    /// Splits a reference. An invalid one is not an error here: the kubelet reports it.
    pub fn read(text: &'a str) -> Self {
        let (rest, digest) =
            text.trim().split_once('@').map_or((text.trim(), None), |(rest, digest)| (rest, Some(digest)));
        // A colon before a slash belongs to the registry's port.
        let tagged = rest.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'));
        let (repository, tag) = tagged.map_or((rest, None), |(repository, tag)| (repository, Some(tag)));
        Self { repository, tag: tag.filter(|tag| !tag.is_empty()), digest }
    }

    /// Returns the last part of the path: `mariadb`.
    pub fn name(&self) -> &'a str {
        self.repository.rsplit('/').next().unwrap_or_default()
    }

    /// Returns whether it is an official image, or its copy in a mirror: its path is only a name, or ends with `library/NAME`.
    pub fn is_official(&self) -> bool {
        let is_registry = |part: &str| part == "localhost" || part.contains(['.', ':']);
        let path = match self.repository.split_once('/') {
            Some((first, rest)) if is_registry(first) => rest,
            _ => self.repository,
        };
        !path.contains('/') || path.ends_with(&format!("library/{}", self.name()))
    }

    /// Returns the vendor, if the name shows it.
    pub fn vendor(&self) -> Option<Vendor> {
        let name = self.name();
        let named = |word: &str| name.contains(word);
        match () {
            () if named("mariadb") => Some(Vendor::MariaDb),
            () if named("percona") || named("pxc") => Some(Vendor::Percona),
            () if named("mysql") => Some(Vendor::MySql),
            () => None,
        }
    }

    /// Returns whether the reference may name an image of another series later: it has no tag, or a tag such as `latest`.
    pub fn floats(&self) -> bool {
        const MOVING: [&str; 9] =
            ["latest", "lts", "stable", "rolling", "edge", "nightly", "main", "master", "dev"];
        let first_part = |tag: &'a str| tag.split(['-', '_']).next().unwrap_or_default();
        self.digest.is_none() && self.tag.is_none_or(|tag| MOVING.contains(&first_part(tag)))
    }

    /// Returns whether the tag is only a major version, which moves from series to series.
    pub fn is_major_only(&self) -> bool {
        let is_number = |tag: &str| tag.chars().all(|c| c.is_ascii_digit());
        self.digest.is_none() && self.vendor().is_some() && self.tag.is_some_and(is_number)
    }

    /// Returns the series, if a known vendor's tag begins with a plausible one.
    pub fn series(&self) -> Option<Series> {
        let tag = self.tag?.trim_start_matches('v');
        let mut numbers = tag.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        let series = Series(numbers.next()?.ok()?, tag.contains('.').then(|| numbers.next())??.ok()?);
        let plausible = match self.vendor()? {
            Vendor::MariaDb => series.0 == 5 || (10..20).contains(&series.0),
            Vendor::MySql | Vendor::Percona => (5..10).contains(&series.0),
        };
        plausible.then_some(series)
    }

    /// Returns the third number of the version, and the highest that the series can have reached by the end of this year:
    /// eight releases a year, four of which are planned. `None`: the tag has no third number, or the series is unknown.
    pub fn release(&self, year: i16) -> Option<(u32, u32)> {
        let series = self.series().filter(|_| self.vendor() == Some(Vendor::MariaDb))?;
        let (_, first_year) = MARIADB_SINCE.iter().find(|(known, _)| *known == series)?;
        let years = u32::try_from(year.saturating_sub(*first_year)).unwrap_or(0);
        Some((self.third_number()?, years.saturating_add(1).saturating_mul(8)))
    }

    /// Returns the third number, such as `32` of `8.0.32-debian`.
    fn third_number(&self) -> Option<u32> {
        let third = self.tag?.splitn(3, '.').nth(2)?;
        third.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// Returns whether it is an earlier release of the same series. `None`: both are of one series, but one
    /// has no third number.
    pub fn is_earlier_than(&self, other: &Self) -> Option<bool> {
        let same_series =
            self.vendor() == other.vendor() && self.series().is_some() && self.series() == other.series();
        Some(same_series && self.third_number()? < other.third_number()?)
    }

    /// Returns whether it is the official image or a copy of it, of 11.0 or later: it has no programs called `mysql…`.
    pub fn dropped_old_names(&self) -> bool {
        self.name() == "mariadb"
            && !self.repository.contains("bitnami")
            && self.series() >= Some(Series(11, 0))
    }
}

/// The series with long support, oldest first; all early series had it.
const MARIADB_LONG: [Series; 12] = [
    Series(5, 5),
    Series(10, 0),
    Series(10, 1),
    Series(10, 2),
    Series(10, 3),
    Series(10, 4),
    Series(10, 5),
    Series(10, 6),
    Series(10, 11),
    Series(11, 4),
    Series(11, 8),
    Series(12, 3),
];
/// The year of the first stable release of a series.
const MARIADB_SINCE: [(Series, i16); 5] = [
    (Series(10, 5), 2020),
    (Series(10, 6), 2021),
    (Series(10, 11), 2023),
    (Series(11, 4), 2024),
    (Series(11, 8), 2025),
];
const MYSQL_LONG: [Series; 6] =
    [Series(5, 5), Series(5, 6), Series(5, 7), Series(8, 0), Series(8, 4), Series(9, 7)];
/// The last series before the next major.
const MARIADB_LAST: [Series; 4] = [Series(5, 5), Series(10, 11), Series(11, 8), Series(12, 3)];
const MYSQL_LAST: [Series; 1] = [Series(8, 4)];

impl Vendor {
    /// Returns how far the change from one series to another goes.
    pub fn step(self, from: Series, to: Series) -> VersionChange {
        let (long_support, last_of_major): (&[Series], &[Series]) = match self {
            Self::MariaDb => (&MARIADB_LONG, &MARIADB_LAST),
            Self::MySql | Self::Percona => (&MYSQL_LONG, &MYSQL_LAST),
        };
        let next_long = long_support.iter().copied().find(|series| *series > from);
        let next = if last_of_major.contains(&from) && from != Series(5, 5) {
            Series(from.0.saturating_add(1), 0)
        } else {
            Series(from.0, from.1.saturating_add(1))
        };
        match () {
            () if to == from => VersionChange::Same,
            () if to < from => VersionChange::Down,
            // Series between two with long support are innovation releases, and MySQL may skip those.
            () if self != Self::MariaDb && next_long.is_some_and(|long| to <= long) => VersionChange::Up,
            () if to == next || Some(to) == next_long => VersionChange::Up,
            () => VersionChange::Skips(next_long.unwrap_or(next)),
        }
    }
}

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
            Self::Percona => "Percona",
        })
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Vendor::{MariaDb, MySql, Percona};

    #[test]
    fn names_survive_registries_tags_and_digests() {
        for image in [
            "mariadb",
            "mariadb:10.11",
            "docker.io/library/mariadb:latest",
            "r:5000/mariadb@sha256:00",
            "r:5000/x/mariadb",
        ] {
            assert_eq!(Image::read(image).name(), "mariadb", "{image}");
        }
    }

    #[test]
    fn official_images_and_their_copies_are_distinguished_from_others() {
        for (image, library) in [
            ("mariadb:10.11", true),
            ("docker.io/library/mariadb:10.11", true),
            ("r:5000/mariadb", true),
            ("localhost/mariadb", true),
            ("mirror.example.com/hub/library/mariadb@sha256:00", true),
            ("linuxserver/mariadb", false),
            ("lscr.io/linuxserver/mariadb:10.11", false),
            ("our/mariadb", false),
        ] {
            assert_eq!(Image::read(image).is_official(), library, "{image}");
        }
    }

    #[test]
    fn vendor_series_and_floating_tags_are_recognised() {
        for (text, vendor, series, floats) in [
            ("mariadb:10.11", Some(MariaDb), Some(Series(10, 11)), false),
            ("mariadb:10.11-jammy", Some(MariaDb), Some(Series(10, 11)), false),
            (
                "r:5000/bitnami/mariadb-galera:10.11.6-debian-12-r0",
                Some(MariaDb),
                Some(Series(10, 11)),
                false,
            ),
            ("mariadb:10.6@sha256:00", Some(MariaDb), Some(Series(10, 6)), false),
            ("mariadb@sha256:00", Some(MariaDb), None, false),
            ("r:5000/mariadb", Some(MariaDb), None, true),
            ("mariadb:latest", Some(MariaDb), None, true),
            ("mariadb:lts-noble", Some(MariaDb), None, true),
            ("mariadb:11", Some(MariaDb), None, false),
            ("our/mariadb:1.4.2", Some(MariaDb), None, false),
            ("our/mariadb:20240101", Some(MariaDb), None, false),
            ("our/mariadb:99999999999999999999.1", Some(MariaDb), None, false),
            ("mysql:8.0", Some(MySql), Some(Series(8, 0)), false),
            ("percona/percona-xtradb-cluster:8.0.35-27.1", Some(Percona), Some(Series(8, 0)), false),
            ("our/db:1", None, None, false),
            ("", None, None, true),
            (":", None, None, true),
            ("@", None, None, false),
            ("é:é@é", None, None, false),
        ] {
            let image = Image::read(text);
            assert_eq!((image.vendor(), image.series(), image.floats()), (vendor, series, floats), "{text}");
        }
        assert!(Image::read("mariadb:11").is_major_only() && !Image::read("our/db:11").is_major_only());
    }

    #[test]
    fn changes_of_series_are_classified() {
        let s = |text: &str| Image::read(&format!("mariadb:{text}")).series().unwrap();
        for (from, to, step) in [
            ("10.11", "10.11", VersionChange::Same),
            ("10.5", "10.6", VersionChange::Up),
            ("10.6", "10.7", VersionChange::Up),
            ("10.6", "10.11", VersionChange::Up),
            ("10.7", "10.11", VersionChange::Up),
            ("10.11", "11.0", VersionChange::Up),
            ("10.11", "11.4", VersionChange::Up),
            ("11.8", "12.0", VersionChange::Up),
            ("5.5", "10.0", VersionChange::Up),
            ("12.3", "13.0", VersionChange::Up),
            ("10.6", "11.4", VersionChange::Skips(s("10.11"))),
            ("10.4", "10.6", VersionChange::Skips(s("10.5"))),
            ("10.11", "11.8", VersionChange::Skips(s("11.4"))),
            ("13.0", "13.2", VersionChange::Skips(s("13.1"))),
            ("10.11", "10.6", VersionChange::Down),
            ("11.4", "10.11", VersionChange::Down),
        ] {
            assert_eq!(MariaDb.step(s(from), s(to)), step, "{from} -> {to}");
        }
        assert_eq!(MySql.step(Series(5, 7), Series(8, 0)), VersionChange::Up);
        assert_eq!(Percona.step(Series(5, 6), Series(8, 0)), VersionChange::Skips(Series(5, 7)));
        assert_eq!(Percona.step(Series(8, 4), Series(9, 0)), VersionChange::Up);
        assert_eq!(MySql.step(Series(8, 4), Series(9, 4)), VersionChange::Up);
        assert_eq!(MySql.step(Series(9, 1), Series(9, 7)), VersionChange::Up);
        assert_eq!(MySql.step(Series(8, 3), Series(9, 0)), VersionChange::Skips(Series(8, 4)));
        assert_eq!(MySql.step(Series(8, 0), Series(9, 4)), VersionChange::Skips(Series(8, 4)));
    }

    #[test]
    fn releases_of_one_series_are_compared_if_both_tags_name_one() {
        let earlier = |was: &str, is: &str| Image::read(is).is_earlier_than(&Image::read(was));
        assert_eq!(earlier("mysql:8.0.32", "mysql:8.0.28-debian"), Some(true));
        assert_eq!(earlier("mysql:8.0.9", "mysql:8.0.10"), Some(false));
        assert_eq!(earlier("mysql:8.0.32", "mysql:8.4.3"), Some(false));
        assert_eq!(earlier("mysql:8.0", "mysql:8.0.28"), None);
    }

    #[test]
    fn official_images_from_11_0_on_have_no_old_names() {
        for (text, dropped) in [
            ("mariadb:11.4", true),
            ("r:5000/mariadb:11.0.2-jammy", true),
            ("mariadb:10.11", false),
            ("mariadb:latest", false),
            ("bitnami/mariadb:11.4", false),
            ("bitnami/mariadb-galera:11.4", false),
        ] {
            assert_eq!(Image::read(text).dropped_old_names(), dropped, "{text}");
        }
    }
}
