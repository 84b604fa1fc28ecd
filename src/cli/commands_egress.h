// The commands about a sandbox's network: policies, presets, credentials, the log, ports. One function each, as in commands.h.
#pragma once

#include <string>
#include <vector>

#include "cli/client.h"

namespace space::cli {

Task<int> set_egress(Context& context, std::string sandbox, std::vector<std::string> words);  // 75: kept, not in force yet
// The exit status of a command that set a policy: 0 when the gateway works by it (`settings` is its answer), else 75 and a note.
int in_force(Context& context, const std::string& sandbox, const json::object& settings);
Task<int> check_in_force(Context& context, std::string sandbox);  // of the present policy, asked of the server
Task<int> get_egress(Context& context, std::string sandbox);
Task<int> explain_egress(Context& context, std::string sandbox, std::string method, std::string url);  // 0 allowed, 1 refused
Task<int> observed_egress(Context& context, std::string sandbox);
struct EgressLogOptions {
  std::string sandbox;  // "": of the tenant
  std::string after;
  bool follow = false;
};
Task<int> egress_log(Context& context, EgressLogOptions options);

// These need no server.
int list_presets(bool as_json);
int show_preset(const std::string& name);
int preset_from_machine(bool ask_tools);

struct CredentialOptions {
  std::string name;
  std::string file;         // "-" or "": standard input
  std::string environment;  // a variable's name, in place of a file
  bool must_exist = false;  // rotate
  std::string key;          // base64, of the gateway; asked of the server when not given
  bool plain = false;       // sent as it is: the server's api role passes it on
};
Task<int> set_credential(Context& context, CredentialOptions options);
Task<int> list_credentials(Context& context);
Task<int> remove_credential(Context& context, std::string name);

Task<int> list_public_ports(Context& context, std::string sandbox);
Task<int> change_port(Context& context, std::string sandbox, std::string port, bool is_public);
Task<int> traffic_token(Context& context, std::string sandbox);  // prints it

}  // namespace space::cli
