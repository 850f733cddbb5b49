# To be sourced: packages of any of Debian's releases, without a change to what this machine has.

# apt_of deb|deb-src RELEASE FOLDER: sets the array `apt`, a command whose lists are in FOLDER. No
# release: this machine's, Debian or Ubuntu.
apt_of() {
  local type=$1 release=$2 folder=$3 list=list.sources
  mkdir -p "$folder/lists/partial"
  cat /etc/apt/sources.list.d/*.sources 2>/dev/null | sed "s/^Types:.*/Types: $type/" >"$folder/list.sources"
  if [ -n "$release" ]; then
    awk -v RS= '/debian/ && !/-security/' ORS='\n\n' "$folder/list.sources" |
      sed "s/^Suites:.*/Suites: $release/" >"$folder/of_release"
    mv "$folder/of_release" "$folder/list.sources"
  elif [ ! -s "$folder/list.sources" ]; then
    list=list.list
    sed -n "s/^deb /$type /p" /etc/apt/sources.list >"$folder/list.list"
  fi
  apt=(apt-get -qq -o "Dir::Etc::sourcelist=$folder/$list" -o Dir::Etc::sourceparts=-
    -o "Dir::State::Lists=$folder/lists" -o APT::Sandbox::User=root)
  "${apt[@]}" update
}

# log_to FILE: what follows writes there, and its end is shown when a command fails.
log_to() {
  set -E
  exec 3>&2 >"$1" 2>&1
  # shellcheck disable=SC2064
  trap "tail -n 40 '$1' >&3" ERR
}
