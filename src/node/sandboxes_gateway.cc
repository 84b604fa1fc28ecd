// What the egress gateway and a sandbox's checkpoints have to do with each other: the addresses that a guest was told stand for the same
// names in every sandbox that comes out of a checkpoint, and a guest whose certificate was late gets it.
#include "base/file.h"
#include "base/log.h"
#include "node/busy.h"
#include "node/sandboxes.h"

namespace space::node {
namespace {

constexpr std::size_t kLongestState = 8 << 20;

}  // namespace

Task<std::shared_ptr<const std::string>> Sandboxes::gateway_state_of(std::string tenant, std::shared_ptr<const Checkpoint> from,
                                                                     std::filesystem::path folder) {
  auto read = [this, tenant, from, folder]() -> Result<std::string> {
    TRY(std::string text, parts_.vault.gateway_state(tenant, from->manifest));
    if (!folder.empty() && !text.empty()) TRY_VOID(write_file_durable(folder / kGatewayState, text));
    return text;
  };
  CO_TRY(std::string text, co_await parts_.disk.run(read));
  co_return std::make_shared<const std::string>(std::move(text));
}

std::shared_ptr<const std::string> read_gateway_state(const std::filesystem::path& folder) {
  auto text = read_file(folder / kGatewayState, kLongestState);
  if (text) return std::make_shared<const std::string>(std::move(*text));
  if (text.error().kind != ErrorKind::not_found)
    log::error("sandbox.gateway_state_unreadable", {{"folder", folder.string()}, {"error", text.error()}});
  return nullptr;
}

asio::awaitable<void> Sandboxes::introduce_again(std::string vm) {
  const Busy busy(busy_, idle_);
  std::shared_ptr<Sandbox> sandbox;
  for (const auto& [id, one] : table_)
    if (one->machine.id == vm) sandbox = one;
  if (!sandbox) co_return;
  const auto turn = co_await sandbox->strand.enter();
  // One that stands still gets its certificate when it goes on.
  if (sandbox->gone || sandbox->removing || sandbox->machine.id != vm || sandbox->record.state != SandboxState::running) co_return;
  Spans unused(parts_.clock);
  Identity identity = identity_of(sandbox->record);
  identity.names = sandbox->gateway_state;
  auto done = co_await parts_.machines.activate(sandbox->machine, identity, unused);
  if (done && sandbox->record.loaded) told(sandbox);
  if (done)
    log::info("sandbox.introduced_again", {{"sandbox", sandbox->record.id}});
  else
    log::warn("sandbox.not_introduced", {{"sandbox", sandbox->record.id}, {"error", done.error()}});
}

}  // namespace space::node
