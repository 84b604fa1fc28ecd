// Where the server is and which key to show it.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace space::cli {

struct ConnectionOptions {         // from the command line; "" when not given
  std::string url;                 // else SPACE_URL, else http://127.0.0.1:7070
  std::filesystem::path key_file;  // else SPACE_API_KEY (the key itself), else SPACE_KEY_FILE, else <data dir>/first.key
  std::filesystem::path data_dir;  // else /var/lib/space
  std::filesystem::path ca_file;   // else SPACE_CA_FILE, else the system's
};

struct Connection {
  std::string url;
  bool tls = false;
  std::string host;  // name or literal, without brackets
  std::uint16_t port = 0;
  std::string key;      // "": none was found; the server decides whether it needs one
  std::string ca_file;  // "": the system's
};

// Reads the environment and the key file. Blocks.
Result<Connection> find_connection(const ConnectionOptions& options);

// "http://host[:port]" or "https://…", nothing behind it.
Result<Connection> parse_url(const std::string& url);

}  // namespace space::cli
