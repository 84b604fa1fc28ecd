// The role `api`: the public HTTP side of SPACE on one address. It owns the database, keys, operations and events, and reaches
// sandboxes only through node's socket. Plain data here; `space` parses flags and files and fills it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"

namespace space::api {

struct ApiConfig {
  // Where it listens: an IP literal. Anything but a loopback address is refused unless both TLS files are given.
  std::string address = "127.0.0.1";
  std::uint16_t port = 7070;              // 0 picks a free one
  std::filesystem::path tls_certificate;  // PEM, both or none
  std::filesystem::path tls_key;
  // When set: written once the role listens, one line "http://127.0.0.1:7070"; removed at the end.
  std::filesystem::path address_file;

  // E2B's clients reach ports of sandboxes as PORT-ID.<domain>; "": by headers alone.
  std::string domain;
  std::string domain_address = "127.0.0.1";  // where the domain's names are served, over TLS
  std::uint16_t domain_port = 7443;
  std::filesystem::path domain_file;  // when set: written with "<domain>:<port>" and the authority's file, one a line
  bool e2b_allow_unsecured = false;   // sandboxes without tokens

  std::filesystem::path data_dir = "/var/lib/space";  // control/space.db is made below it
  std::filesystem::path first_key_file;               // "": <data_dir>/first.key
  std::filesystem::path node_socket = "/run/space/node.sock";

  // Started as root: listens, reads the TLS key and writes the first key, then becomes this uid and gid. 0: stays as it is.
  std::uint32_t uid = 0;

  // How long an operation waits for a node that does not answer before it fails with node_unavailable.
  std::uint32_t node_patience_s = 60;
  // Operations under way at once; later ones wait as `pending`. Beyond `max_pending` a request is refused (429).
  std::size_t max_running = 64;
  std::size_t max_pending = 10'000;
  bool debug = false;  // log level
  // Called once, when all is open that asks for rights and before there are threads: what this process can reach shrinks. Empty: it does
  // not.
  std::function<Result<>()> enclose;
  bool tenants_on_tcg = false;  // tenants share a host without hardware virtualisation
};

// Serves until SIGTERM or SIGINT; 0 after a clean end, else 1 with the reason in the log (and on standard error).
int run(const ApiConfig& config);

}  // namespace space::api
