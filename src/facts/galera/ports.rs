//! The ports that a server listens on, as far as a manifest and its option files set them.

use super::options::{flags, last, provider_options};
use super::reading::ConfigMapFile;
use super::server::GALERA_PORT;
use objects::Container;

/// The default port for clients.
pub const DEFAULT_PORT: i64 = 3306;

/// The default port for incremental state transfers.
const DEFAULT_INCREMENTAL_PORT: i64 = 4568;

/// The ports that options set; `None`: the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// The port for clients; 3306 by default.
    pub clients: Option<i64>,
    /// The port for full state transfers; 4444 by default.
    pub transfer: Option<i64>,
    /// The port for group communication; 4567 by default.
    pub group: Option<i64>,
    /// The port for incremental state transfers; 4568 by default.
    pub incremental: Option<i64>,
}

/// The variable from which Bitnami's images take the port.
const PORT_VARIABLE: &str = "MARIADB_PORT_NUMBER";

impl Ports {
    /// Returns the ports of a server with these files.
    pub fn of(server: &Container, files: &[ConfigMapFile<'_>]) -> Self {
        let option_or_flag = |key: &str| {
            let flag = flags(server).into_iter().rfind(|flag| flag.key == key);
            let of_flag = flag.map(|flag| flag.value.map_or(String::new(), |it| it.look().to_owned()));
            let of_files = || files.iter().rev().find_map(|file| last(file.text, key));
            of_flag.or_else(|| Some(of_files()?.look().to_owned()))
        };
        // The address has the form HOST:PORT.
        let port_of = |address: &str| address.rsplit_once(':').and_then(|(_, port)| number(port));
        let variable =
            || server.env.iter().find(|var| var.name == PORT_VARIABLE).and_then(|it| number(it.value.look()));
        let provider = option_or_flag("wsrep_provider_options").unwrap_or_default();
        let option = |named: &str| provider_options(&provider).filter(|(name, _)| *name == named).last();
        // By default incremental transfers use the next port after the one for group communication.
        let group = option("base_port").and_then(|(_, port)| number(port));
        let next = || group.map(|port| port + 1).filter(|port| *port != DEFAULT_INCREMENTAL_PORT);
        Self {
            clients: option_or_flag("port").map_or_else(variable, |it| number(&it)),
            transfer: option_or_flag("wsrep_sst_receive_address").and_then(|it| port_of(&it)),
            group: group.filter(|port| *port != GALERA_PORT),
            incremental: option("ist.recv_addr").and_then(|(_, address)| port_of(address)).or_else(next),
        }
    }
}

fn number(text: &str) -> Option<i64> {
    text.trim().parse().ok().filter(|port| (1..=65535).contains(port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use objects::Literal;

    #[test]
    fn the_command_line_wins_over_option_files() {
        let file = |text| [ConfigMapFile { map: "conf", key: "g.cnf", text }];
        let mut server = Container::default();
        assert_eq!(Ports::of(&server, &file("[client]\nport=3307\n")), Ports::default());
        let text = "[mysqld]\nport=3307\nwsrep_sst_receive_address=10.0.0.1:5444\nwsrep_provider_options=\"a=b;ist.recv_addr=[::1]:5568\"\n";
        let expected =
            Ports { clients: Some(3307), transfer: Some(5444), group: None, incremental: Some(5568) };
        assert_eq!(Ports::of(&server, &file(text)), expected);
        server.args = vec![Literal::from("--port=3308")];
        assert_eq!(Ports::of(&server, &file(text)), Ports { clients: Some(3308), ..expected });
        let based = |more: &str| {
            let text = format!("[mysqld]\nwsrep_provider_options=base_port=4600{more}\n");
            let ports = Ports::of(&server, &[ConfigMapFile { map: "conf", key: "g.cnf", text: &text }]);
            (ports.group, ports.incremental)
        };
        assert_eq!(
            [based(""), based(";ist.recv_addr=10.0.0.1"), based(";ist.recv_addr=a:5568")],
            [Some(4601), Some(4601), Some(5568)].map(|incremental| (Some(4600), incremental))
        );
        server.args = vec![Literal::from("--port=70000")];
        assert_eq!(Ports::of(&server, &[]).clients, None);
    }
}
