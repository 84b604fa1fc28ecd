# shellcheck shell=sh
# Programs that `pip install` and `npm i -g` put into the home come first; /etc/profile has just set PATH without them.
if [ "$(id -u)" -ne 0 ]; then
  PATH="$HOME/.local/bin:$HOME/.npm-global/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
  export PATH
fi
