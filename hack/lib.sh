# shellcheck shell=bash disable=SC2034 # variables for the scripts that source this file
# Helpers of the scripts in hack/.

script=${0##*/}
cache=${XDG_CACHE_HOME:-${HOME:?set HOME to a folder}/.cache}/podset-operator
unset CDPATH # with it, cd prints

die() { printf '%s: %s\n' "$script" "$*" >&2 && exit 1; }
misuse() { printf '%s: %s\n' "$script" "$*" >&2 && exit 2; }
need() { type -P "$1" >/dev/null || die "$1 is missing: $2"; } # COMMAND ADVICE
listens() { (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }       # PORT
next_port() { while listens "$((--port))"; do :; done; }       # sets port to the next lower free one

within() { # SECONDS COMMAND...: repeats it until it succeeds
  local limit=$((SECONDS + $1))
  until "${@:2}"; do ((SECONDS < limit)) && sleep 0.1 || return; done
}
wait_for() { # WHAT SECONDS COMMAND...
  within "${@:2}" || die "no $1 after $2 seconds"
}

# Sets name, tag and digest from NAME[:TAG][@DIGEST].
split_image() {
  [[ $1 =~ ^[A-Za-z0-9][A-Za-z0-9._/:@-]*$ ]] || misuse "'$1' is not the name of an image"
  name=${1%%@*} tag='' digest=''
  if [[ $1 == *@* ]]; then digest=${1#*@}; fi
  if [[ ${name##*/} == *:* ]]; then tag=${name##*:} name=${name%:*}; fi
}

# What CHANGELOG.md says about a version.
changes_of() { # VERSION
  awk -v heading="## $1 (" 'index($0, heading) == 1 { found = 1; next } /^## / { found = 0 } found' CHANGELOG.md
}

# The rest is for hack/demo and hack/trace-demo, which run in the root of the repository and define usage and look_around.

state=$cache/$script # logs and PIDs
bold='' blue='' plain='' keep=${KEEP:-0}
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then bold=$'\e[1m' blue=$'\e[36m' plain=$'\e[0m'; fi
system=podset-operator-system # the namespace of config/rbac
cluster_options=()            # for kwokctl create cluster

say() { printf '\n%s\n' "$@"; }
step() { printf '\n%s## %s%s\n\n%s\n' "$bold" "$1" "$plain" "$2"; } # TITLE SENTENCE
typed() { printf '\n%s$ %s%s\n' "$blue" "$1" "$plain"; }            # COMMAND

show() { # COMMAND...: prints each as a user types it, and its output
  local command
  for command in "$@"; do
    typed "$command"
    bash -o pipefail -c "$command" || die "this command failed: $command"
  done
}

# A process is recorded in NAME.pid with its PID and its start time, because the kernel uses PIDs again.
start_time() {
  local fields
  fields=$(cat "/proc/$1/stat" 2>/dev/null) || return
  read -ra fields <<<"${fields##*) }"
  [[ ${fields[0]} != Z ]] && echo "${fields[19]}"
}
record() { echo "$2 $(start_time "$2")" >"$state/$1.pid"; } # NAME PID
runs() {                                                    # NAME; sets pid
  local time
  read -r pid time 2>/dev/null <"$state/$1.pid" && [[ $(start_time "$pid") == "$time" ]]
}
start() { # NAME COMMAND...: in a session of its own, so that Ctrl-C does not reach it
  setsid "${@:2}" </dev/null >"$state/$1.log" 2>&1 &
  record "$1" $!
}
stop() { # NAME...: SIGTERM, and SIGKILL after 25 seconds
  local name since=$SECONDS
  for name in "$@"; do if runs "$name"; then kill -TERM "$pid" || true; fi; done
  for name in "$@"; do
    while runs "$name"; do
      ((SECONDS - since < 25)) || kill -KILL "$pid" || true
      sleep 0.05
    done
    rm -f "$state/$name.pid"
  done
}

cluster() { hack/cluster/cluster "$@"; }
is_up() { cluster kubeconfig "$script" >/dev/null 2>&1; }

# Reads the arguments of the script, and stops everything when it ends.
begin() {
  case $#:${1:-} in
    0: | 1:end) ;;
    1:-h | 1:--help) usage && exit ;;
    *) misuse "not understood: $* (hack/$script --help shows the usage)" ;;
  esac
  need cargo "https://rustup.rs installs Rust"
  need cc "one dependency needs a C compiler: install gcc or clang"
  mkdir -p "$state"
  ! runs .script || die "it runs already: Ctrl-C there ends it"
  record .script $$
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 141' PIPE
  trap 'exit 143' TERM
  if (($#)); then stop_all && exit; fi
  ! is_up || die "it is up already: hack/$script end ends it"
  trap at_exit EXIT
  rm -f "$state"/*.log
}

at_exit() {
  local code=$?
  set +e
  trap '' INT TERM HUP PIPE
  if ((code == 1)); then (cd "$state" && tail -vn 5 -- *.log 2>/dev/null) >&2; fi
  if [[ $keep != 0 ]] && is_up; then
    say "Everything stays up. To look around:"
    look_around
    say "To end it: hack/$script end"
  else
    stop_all
  fi
  exit "$code"
}

stop_all() {
  local files=("$state"/*.pid)
  files=("${files[@]##*/}")
  stop "${files[@]%.pid}"
  cluster down "$script"
}

build() { # sets operator to the path of the binary
  echo "Building Kubernetes and the operator. The first time takes 5 to 10 minutes."
  bin=$(cluster bin)
  PATH=$bin:$PATH
  operator=$(cargo build --locked --quiet --bin podset-operator --message-format json-render-diagnostics |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
}

# Starts the cluster with the CRDs and the rights, and writes the operator's kubeconfig: an administrator who acts as the
# ServiceAccount has the rights of config/rbac and no others.
start_cluster() {
  local account=system:serviceaccount:$system:podset-operator variable user
  typed "export KUBECONFIG=\$(hack/cluster/cluster up $script)"
  KUBECONFIG=$(cluster up "$script" -- "${cluster_options[@]}")
  export KUBECONFIG KUBECACHEDIR=$state/kubectl-cache KUBERC=off
  # Not at once after the CRDs: until they have conditions, `kubectl wait` fails instead of waiting.
  show "kubectl apply -k config/crd" "kubectl apply -k config/rbac" "kubectl wait crd --all --for=condition=Established"
  operators=$state/operator.kubeconfig
  (umask 077 && kubectl config view --minify --raw >"$operators")
  user=$(kubectl config view --minify --output jsonpath='{.users[0].name}')
  kubectl --kubeconfig "$operators" config set "users.$user.act-as" "$account" >/dev/null
  kubectl --kubeconfig "$operators" config set-context --current --namespace "$system" >/dev/null
  wait_for "rights" 30 kubectl auth can-i --quiet create pods --as "$account"
  # The caller's settings are for another operator.
  for variable in "${!PODSET_OPERATOR_@}" "${!OTEL_@}" RUST_LOG {HTTP,HTTPS,ALL}_PROXY {http,https,all}_proxy; do
    unset "$variable"
  done
  export PODSET_OPERATOR_HEALTH_PROBE_BIND_ADDRESS=127.0.0.1:0 PODSET_OPERATOR_METRICS_BIND_ADDRESS=127.0.0.1:0
}

start_operator() { # NAME [VARIABLE=VALUE]...
  typed "POD_NAME=$* podset-operator run &"
  start "$1" env KUBECONFIG="$operators" POD_NAME="$1" "${@:2}" "$operator" run
}

# The name of the replica that leads: the holder of the Lease up to its random part.
leader() {
  local holder
  holder=$(kubectl get lease podset-operator --namespace "$system" --output jsonpath='{.spec.holderIdentity}' 2>/dev/null) || true
  echo "${holder%_*}"
}
has_leader_but() { [[ $(leader) != "${1:-}" && -n $(leader) ]]; } # [NAME]
