//! Files beside the manifests of a repository that only another program turns into manifests, or that are not manifests at all.
//! There is one note for each kind of file, however many files there are.
//!
//! Owns: the text of the notes, and the commands whose output can be judged. Must not know: where files come from. Nothing is
//! rendered here: a tool on the `PATH` would run what the author of a change wrote, such as a plugin of kustomize.

use std::path::Path;

use crate::manifest::TEMPLATE_PROBLEM;
use objects::visible;

/// A kind of file that is not judged as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UnjudgedFile {
    Chart,
    Template,
    Kustomization,
    KudoPackage,
    /// Text that is not YAML, and does not look like a manifest.
    NotYaml,
}

/// The number of names in one note.
const MOST_NAMES: usize = 3;

impl UnjudgedFile {
    /// Returns the kind of file that a document is part of, if kustomize or KUDO reads it.
    pub(super) fn of(file: &str, version: &str, kind: &str) -> Option<Self> {
        let name = Path::new(file).file_name().unwrap_or_default();
        let has_its_name = ["kustomization.yaml", "kustomization.yml"].iter().any(|it| name == *it);
        let is_kustomization = kind == "Kustomization" && version.starts_with("kustomize.config.k8s.io/")
            || kind.is_empty() && has_its_name;
        if is_kustomization {
            Some(Self::Kustomization)
        } else if kind.is_empty() && version.starts_with("kudo.dev/") {
            Some(Self::KudoPackage)
        } else {
            None
        }
    }

    /// Returns the note about these files.
    pub(super) fn note(self, files: &[&str]) -> String {
        let [file, others @ ..] = files else { return String::new() };
        let folder = match Path::new(file).parent().map(|it| it.display().to_string()) {
            Some(folder) if !folder.is_empty() => folder,
            _ => ".".to_owned(),
        };
        let one = others.is_empty();
        let (count, all) = (files.len(), names(files));
        visible(&match self {
            Self::Chart if one => format!(
                "these are templates of a chart, so they were not judged; judge their output: helm template {folder} | gatera check -"
            ),
            Self::Chart => format!(
                "the templates of {count} charts were not judged: {all}; judge the output of each: helm template {folder} | gatera check -"
            ),
            Self::Template if one => TEMPLATE_PROBLEM.to_owned(),
            Self::Template => format!(
                "{count} files are templates, not manifests: {all}; judge their output: helm template CHART | gatera check -"
            ),
            Self::Kustomization if one => format!(
                "this kustomization was not built, so its files were judged as they are; judge its output: kubectl kustomize {folder} | gatera check -"
            ),
            Self::Kustomization => format!(
                "{count} kustomizations were not built, so their files were judged as they are: {all}; judge the output of each: kubectl kustomize {folder} | gatera check -"
            ),
            Self::KudoPackage if one => {
                "this is a KUDO package, which only KUDO renders, in a cluster: what it creates is judged there".to_owned()
            }
            Self::KudoPackage => format!(
                "{count} files belong to KUDO packages, which only KUDO renders, in a cluster: {all}; what they create is judged there"
            ),
            Self::NotYaml if one => {
                "this is not YAML that kubectl reads, and does not look like a manifest, so it was not judged".to_owned()
            }
            Self::NotYaml => format!(
                "{count} files are not YAML that kubectl reads, and do not look like manifests, so they were not judged: {all}"
            ),
        })
    }
}

/// Returns some of the names, and how many more there are.
fn names(files: &[&str]) -> String {
    let shown = files.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
    if files.len() > MOST_NAMES { format!("{shown} and {} more", files.len() - MOST_NAMES) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_of_a_kind_are_one_note() {
        assert_eq!(
            UnjudgedFile::Kustomization.note(&["a/kustomization.yaml", "b/kustomization.yaml"]),
            "2 kustomizations were not built, so their files were judged as they are: a/kustomization.yaml, b/kustomization.yaml; judge the output of each: kubectl kustomize a | gatera check -"
        );
        let files: Vec<_> = (0..5).map(|n| format!("t{n}.yaml")).collect();
        let files: Vec<_> = files.iter().map(|it| &**it).collect();
        assert_eq!(
            UnjudgedFile::Template.note(&files),
            "5 files are templates, not manifests: t0.yaml, t1.yaml, t2.yaml and 2 more; judge their output: helm template CHART | gatera check -"
        );
    }

    #[test]
    fn files_for_other_programs_are_recognized() {
        for (file, version, kind, aside) in [
            ("a/kustomization.yaml", "", "", Some(UnjudgedFile::Kustomization)),
            (
                "a/k.yaml",
                "kustomize.config.k8s.io/v1beta1",
                "Kustomization",
                Some(UnjudgedFile::Kustomization),
            ),
            ("a/k.yaml", "kustomize.toolkit.fluxcd.io/v1", "Kustomization", None),
            ("operator.yaml", "kudo.dev/v1beta1", "", Some(UnjudgedFile::KudoPackage)),
            ("instance.yaml", "kudo.dev/v1beta1", "Instance", None),
            ("values.yaml", "", "", None),
        ] {
            assert_eq!(UnjudgedFile::of(file, version, kind), aside, "{file} {version} {kind}");
        }
    }
}
