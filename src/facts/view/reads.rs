//! The files that servers read, as far as they are known: their option files, and what follows from those.
//!
//! Must not know: what is wrong with any of it.

use std::collections::BTreeMap;

use super::index::By;
use super::{Cluster, View};
use crate::galera::address::{self, PlacedAddress};
use crate::galera::data::DataFolder;
use crate::galera::ports::Ports;
use crate::galera::reading::ConfigMapFile;
use crate::galera::{adopt, options, server};
use crate::revision::{self, Keys};
use objects::{ConfigMap, Container, Literal, Meta, PodSpec, Workload};

impl<'a> View<'a> {
    /// Returns what makes this pod the first node of a new cluster, if anything does.
    pub fn founds_new_cluster(&self, namespace: &str, metadata: &Meta, spec: &PodSpec) -> Option<String> {
        let server = self.filled_in(namespace, server::in_pod(metadata, spec)?);
        server::founds_new_cluster(&server, &self.files(namespace, spec)).or_else(|| {
            adopt::is_bootstrap(&metadata.labels).then(|| "label app=galera-bootstrap".to_owned())
        })
    }

    /// Returns the files of ConfigMaps that a pod sees, as far as they are known.
    pub fn files<'s>(&self, namespace: &str, spec: &'s PodSpec) -> Vec<ConfigMapFile<'s>>
    where
        'a: 's,
    {
        self.files_of(namespace, spec, revision::reaching(spec))
    }

    fn files_of<'s>(
        &self,
        namespace: &str,
        spec: &'s PodSpec,
        mut reaching: BTreeMap<String, Keys>,
    ) -> Vec<ConfigMapFile<'s>>
    where
        'a: 's,
    {
        let known = |map: &'s str| {
            // Several volumes may refer to one ConfigMap; its files count once.
            let keys = reaching.remove(map)?;
            let config_map = self.config_map(namespace, map)?;
            let visible = config_map.data.iter().filter(|(key, _)| keys.contains(key));
            Some(visible.map(|(key, text)| ConfigMapFile { map, key, text: text.look() }).collect::<Vec<_>>())
        };
        spec.config_maps().filter_map(known).flatten().collect()
    }

    /// Returns where the server of this StatefulSet keeps its data, as far as that is known.
    pub fn data_folder(&self, namespace: &str, workload: &Workload) -> Option<DataFolder> {
        let template = &workload.spec.template;
        let server = server::of(template)?;
        let server = self.filled_in(namespace, server);
        // A file with unknown content may set another place.
        let unknown = |name: &String| self.config_map(namespace, name).is_none();
        let reaching = revision::reaching(&template.spec);
        if reaching.keys().any(unknown) {
            return None;
        }
        DataFolder::of(workload, &server, &self.files_of(namespace, &template.spec, reaching))
    }

    /// Returns the cluster address that the members of this workload start with, if anything visible shows it.
    pub fn cluster_address<'s>(&self, namespace: &str, workload: &'s Workload) -> Option<PlacedAddress<'s>>
    where
        'a: 's,
    {
        let template = &workload.spec.template;
        let server = server::of(template)?;
        address::of_container(server, &self.files(namespace, &template.spec))
    }

    /// Returns the ports of this server.
    pub fn ports(&self, namespace: &str, spec: &PodSpec, server: &Container) -> Ports {
        let (sources, mut files) = (revision::sources(spec, server), self.files(namespace, spec));
        files.retain(|file| sources.contains_key(file.map));
        Ports::of(&self.filled_in(namespace, server), &files)
    }

    /// Returns the texts of a pod's ConfigMaps, as far as they are known.
    pub fn option_files(&self, namespace: &str, spec: &'a PodSpec) -> impl Iterator<Item = &'a str> {
        let known = spec.config_maps().filter_map(move |name| self.config_map(namespace, name));
        known.flat_map(|map| map.data.values().map(Literal::look))
    }

    /// Returns the clusters whose members read this ConfigMap.
    pub fn readers_of(&self, namespace: &str, config_map: &str) -> impl Iterator<Item = &'a Cluster> {
        self.world.clusters_by(By::SetThatReads, namespace, config_map)
    }

    /// Returns the adopted Deployments that read this ConfigMap.
    pub fn deployments_that_read(
        &self,
        namespace: &str,
        config_map: &str,
    ) -> impl Iterator<Item = &'a Workload> {
        let facts = &self.world.facts;
        facts.found(&facts.deployments, By::DeploymentThatReads, namespace, config_map).map(AsRef::as_ref)
    }

    /// Returns whether an adopted workload of this namespace reads this ConfigMap.
    pub fn is_read(&self, namespace: &str, config_map: &str) -> bool {
        self.readers_of(namespace, config_map).next().is_some()
            || self.deployments_that_read(namespace, config_map).next().is_some()
    }

    /// Returns whether this ConfigMap is Galera's: an adopted workload reads it, or its labels or text show it. Labels
    /// and text also recognise a ConfigMap that is created before its reader.
    pub fn is_galeras(&self, namespace: &str, map: &ConfigMap) -> bool {
        self.is_read(namespace, &map.metadata.name) || self.shows_galera(map)
    }

    /// Returns whether the ConfigMap has Galera's labels, or its text configures Galera and no other operator manages it.
    pub(super) fn shows_galera(&self, map: &ConfigMap) -> bool {
        let meta = &map.metadata;
        let configures =
            |key: &str, text: &str| options::is_file(key, text) && options::configures_galera(text);
        self.adoption().adopts(&meta.labels)
            || meta.operator().is_none() && map.data.iter().any(|(key, text)| configures(key, text.look()))
    }
}
