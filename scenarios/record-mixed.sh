#!/usr/bin/env bash
# Record the captures that ship with the project: captures/mixed.pcap.zst, tiny.pcap and tiny-ns.pcapng.
#
# As root: two network namespaces joined by veth, with a VLAN and a QinQ interface over it, real servers in one and
# real clients in the other, tcpdump beside the servers. Segmentation and checksum offloads are off, so that frames are
# no longer than the MTU and checksums are those on a wire. Everything happens inside the namespaces and one temporary
# folder, and all of it goes on every exit. The captures replace the committed ones only after they passed the checks.
# Each recording differs in times, ports and keys, never in what kinds of packets it holds.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scenarios/record-mixed.sh [--out DIR]

  --out DIR   write the captures there and leave README.md alone (default: scenarios/captures, and README.md)

example: sudo scenarios/record-mixed.sh --out /tmp/captures
TEXT
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$here/captures
write_readme=yes
while (($#)); do
  case $1 in
    --out) out=${2:?--out needs a folder} write_readme=no && shift ;;
    --help) usage && exit 0 ;;
    *) echo "record-mixed: unknown argument '$1': see --help" >&2 && exit 2 ;;
  esac
  shift
done

readonly AIOQUIC_VERSION=1.7.2
readonly READY_WAIT_SECONDS=10 # a server that does not listen by then has failed
readonly CLIENT_SECONDS_MAX=30 # no single client may take longer
readonly COMMITTED_BYTES_MAX=4000000

# --- What must be there -----------------------------------------------------------------------------------------------

require() { # program, Debian package
  command -v "$1" >/dev/null || missing+=("$2")
}

check_machine() {
  local missing=()
  if ((EUID != 0)); then
    echo "record-mixed: needs root to make network namespaces: run it with sudo" >&2 && exit 2
  fi
  if [[ ! -c /dev/net/tun ]]; then
    echo "record-mixed: /dev/net/tun is missing, and the VLAN interfaces are made with it: modprobe tun" >&2 && exit 2
  fi
  require ip iproute2
  require ethtool ethtool
  require sysctl procps
  require tcpdump tcpdump
  require tshark tshark
  require editcap wireshark-common
  require zstd zstd
  require dnsmasq dnsmasq-base
  require nginx nginx-light
  require redis-server redis-server
  require redis-benchmark redis-tools
  require /usr/sbin/sshd openssh-server
  require ssh openssh-client
  require /usr/lib/openssh/sftp-server openssh-sftp-server
  require /usr/lib/usrsctp/tsctp libusrsctp-examples
  require dig bind9-dnsutils
  require curl curl
  require openssl openssl
  require ping iputils-ping
  require traceroute traceroute
  require udhcpc udhcpc
  require python3 python3-venv
  if ((${#missing[@]})); then
    echo "record-mixed: programs are missing: apt-get install --no-install-recommends ${missing[*]}" >&2
    echo "  (put 'exit 101' into /usr/sbin/policy-rc.d for the while, or the servers start on this machine)" >&2
    exit 2
  fi
}

install_aioquic() {
  echo "fetching aioquic $AIOQUIC_VERSION from PyPI"
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check "aioquic==$AIOQUIC_VERSION" || {
    echo "record-mixed: PyPI does not give aioquic $AIOQUIC_VERSION, which speaks QUIC: is the network up?" >&2
    exit 1
  }
}

# --- The place and its removal ----------------------------------------------------------------------------------------

srv=laneway-srv-$$
cli=laneway-cli-$$
work=

# Every process inside the two namespaces was started by this script: no other process knows their names.
end_processes() { # signal
  local namespace pids
  for namespace in "$srv" "$cli"; do
    pids=$(ip netns pids "$namespace" 2>/dev/null || true)
    # shellcheck disable=SC2086 # one word per process id
    [[ -z $pids ]] || kill "-$1" $pids 2>/dev/null || true
  done
}

processes_left() {
  [[ -n $(ip netns pids "$srv" 2>/dev/null)$(ip netns pids "$cli" 2>/dev/null) ]]
}

clean_up() {
  local status=$?
  trap - EXIT INT TERM HUP
  end_processes TERM
  for ((i = 0; i < 20; i++)); do
    processes_left || break
    sleep 0.1
  done
  end_processes KILL
  ip netns del "$cli" 2>/dev/null || true
  ip netns del "$srv" 2>/dev/null || true
  if ((status != 0)) && [[ -n $work ]]; then
    echo "record-mixed: stopped; the last lines of each program:" >&2
    tail -n 4 "$work"/*.log >&2 2>/dev/null || true
  fi
  [[ -z $work ]] || rm -rf "$work"
  exit "$status"
}

on_server() { ip netns exec "$srv" "$@"; }

# "ip" becomes the program, so $! is the server's own process and not a shell around it.
start_on_server() { # log, command...
  local log=$1
  shift
  ip netns exec "$srv" "$@" >"$log" 2>&1 &
}

on_client() { timeout --foreground "$CLIENT_SECONDS_MAX" ip netns exec "$cli" "$@" >>"$work/clients.log" 2>&1; }

# For clients that are meant to be refused, to time out or to find nothing.
in_vain() { on_client "$@" || true; }

wait_for() { # what, command...
  local what=$1
  shift
  for ((i = 0; i < READY_WAIT_SECONDS * 10; i++)); do
    if "$@" >/dev/null 2>&1; then
      return
    fi
    sleep 0.1
  done
  echo "record-mixed: $what is not ready after $READY_WAIT_SECONDS s" >&2
  exit 1
}

listening() { # protocol, port
  on_server ss -Hln "--$1" "sport = :$2" | grep -q .
}

# 192.0.2.0/24, 198.51.100.0/24, 203.0.113.0/24 and 2001:db8::/32 are set aside for documentation (RFC 5737, 3849), and
# so is the tail of these MAC addresses (RFC 7042), here with the bit that marks them as locally administered.
readonly V4=192.0.2.1 V6=2001:db8:1::1
readonly VLAN_V4=198.51.100.1 VLAN_V6=2001:db8:a::1
readonly QINQ_V4=198.51.100.129 QINQ_V6=2001:db8:14::1
readonly OLD_QINQ_V6=2001:db8:28::1 # the tag 0x9100 that was in use before 802.1ad
readonly BEYOND_V4=203.0.113.9 # routed to the server, which sends it back: makes "time exceeded" and redirects
readonly NOBODY_MAC=02:00:5e:00:53:ff
readonly CLIENT_V4=(192.0.2.2 192.0.2.11 192.0.2.12 192.0.2.13 192.0.2.14 192.0.2.15)

make_namespaces() {
  local namespace
  ip netns add "$srv"
  ip netns add "$cli"
  # No addresses but the ones below, even where a router advertisement offers more. The client still asks for one.
  on_server sysctl -qw net.ipv6.conf.default.accept_ra=0 net.ipv6.conf.default.autoconf=0
  ip netns exec "$cli" sysctl -qw net.ipv6.conf.default.autoconf=0 net.ipv6.conf.default.accept_ra_defrtr=0 \
    net.ipv6.conf.default.accept_ra_pinfo=0
  ip -n "$srv" link add name eth0 address 02:00:5e:00:53:01 type veth \
    peer name eth0 address 02:00:5e:00:53:02 netns "$cli"
  for namespace in "$srv" "$cli"; do
    ip -n "$namespace" link set lo up
    ip netns exec "$namespace" ethtool -K eth0 tso off gso off gro off rx off tx off tx-udp-segmentation off >/dev/null
    ip netns exec "$namespace" sysctl -qw net.ipv4.tcp_ecn=1 net.ipv4.tcp_fastopen=3 net.ipv4.icmp_ratelimit=0 \
      net.ipv6.icmp.ratelimit=0 net.ipv4.icmp_msgs_per_sec=10000
  done
  # The last two: packets with a segment routing header are taken instead of dropped.
  on_server sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.eth0.seg6_enabled=1
  ip -n "$srv" address add "$V4/24" dev eth0 broadcast 192.0.2.255
  ip -n "$srv" address add "$V6/64" dev eth0 nodad
  ip -n "$srv" link set eth0 up
}

start_capture() {
  start_on_server "$work/tcpdump.log" tcpdump -i eth0 -n -U -Z root -B 16384 --time-stamp-precision=nano \
    -w "$work/raw-ns.pcap"
  tcpdump_pid=$!
  wait_for tcpdump test -s "$work/raw-ns.pcap"
}

# The client's side comes up while the capture runs: neighbour and router discovery, MLD and IGMP reports are in it.
bring_up_client() {
  local address namespace tail
  for address in "${CLIENT_V4[@]}"; do
    ip -n "$cli" address add "$address/24" dev eth0 broadcast 192.0.2.255
  done
  ip -n "$cli" address add 2001:db8:1::2/64 dev eth0
  ip -n "$cli" link set eth0 up
  ip -n "$cli" route add 203.0.113.0/24 via "$V4"
  ip -n "$srv" route add 203.0.113.0/24 via 192.0.2.2 mtu 1280
  for namespace in "$srv" "$cli"; do
    ip netns exec "$namespace" python3 "$here/record/vlan-tap.py" --link eth0 --tap vlan10=8100.10 \
      --tap qinq=88a8.20,8100.30 --tap oldqinq=9100.40,8100.50 >"$work/taps.$namespace" 2>"$work/taps.$namespace.log" &
    wait_for "the VLAN interfaces of $namespace" grep -q ready "$work/taps.$namespace"
    tail=$([[ $namespace == "$srv" ]] && echo 1 || echo 2)
    ip -n "$namespace" link set vlan10 address "02:00:5e:00:53:1$tail" up
    # Two tags take eight bytes: the kernel lets a packet socket send four more than the MTU for an 802.1Q tag only.
    ip -n "$namespace" link set qinq address "02:00:5e:00:53:2$tail" mtu 1492 up
    ip -n "$namespace" link set oldqinq address "02:00:5e:00:53:4$tail" mtu 1492 up
    ip -n "$namespace" address add "198.51.100.$tail/25" dev vlan10
    ip -n "$namespace" address add "2001:db8:a::$tail/64" dev vlan10 nodad
    ip -n "$namespace" address add "198.51.100.$((128 + tail))/25" dev qinq
    ip -n "$namespace" address add "2001:db8:14::$tail/64" dev qinq nodad
    ip -n "$namespace" address add "2001:db8:28::$tail/64" dev oldqinq nodad
  done
  ip -n "$srv" link add name vxlan42 address 02:00:5e:00:53:31 type vxlan id 42 dstport 4789 \
    local "$V4" remote 192.0.2.2
  ip -n "$cli" link add name vxlan42 address 02:00:5e:00:53:32 type vxlan id 42 dstport 4789 \
    local 192.0.2.2 remote "$V4"
  for namespace in "$srv" "$cli"; do
    ip netns exec "$namespace" ethtool -K vxlan42 tso off gso off gro off rx off tx off >/dev/null
    tail=$([[ $namespace == "$srv" ]] && echo 1 || echo 2)
    ip -n "$namespace" address add "2001:db8:2a::$tail/64" dev vxlan42 nodad
    ip -n "$namespace" link set vxlan42 up
  done
}

# --- Servers ----------------------------------------------------------------------------------------------------------

start_dns_and_dhcp() {
  local long text
  long=long.example.net
  for ((i = 0; i < 6; i++)); do
    text=$(printf 'piece-%d-' "$i" && printf 'x%.0s' {1..180})
    long+=",$text"
  done
  # --bind-dynamic: also on interfaces that appear later. The DHCP script option stays unset: nothing is run.
  start_on_server "$work/dnsmasq.log" dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts \
    --no-poll --user=root --pid-file= --log-facility=- \
    --bind-dynamic --interface=eth0 --interface=vlan10 --interface=qinq --interface=oldqinq \
    --dhcp-leasefile="$work/leases" --dhcp-range=192.0.2.100,192.0.2.150,255.255.255.0,1h \
    --enable-ra --dhcp-range=2001:db8:1::,ra-only --local=/example.net/ --local=/2.0.192.in-addr.arpa/ \
    --host-record="www.example.net,$V4,$V6" --address="/hosts.example.net/192.0.2.77" \
    --address="/hosts.example.net/2001:db8:1::77" --cname=alias.example.net,www.example.net \
    --mx-host=example.net,www.example.net,10 --srv-host=_http._tcp.example.net,www.example.net,80 \
    --txt-record=example.net,"a short text" --txt-record="$long"
  wait_for dnsmasq listening udp 53
}

start_web() {
  local folder=$work/web
  mkdir -p "$folder/files"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=www.example.net \
    -addext subjectAltName=DNS:www.example.net -keyout "$folder/key.pem" -out "$folder/certificate.pem" 2>/dev/null
  : >"$folder/files/empty"
  for size in 1 10 100; do
    # head ends before seq does, and seq then fails on a closed pipe.
    (seq -f 'line %06.0f of a text that compresses well' 100000 || true) 2>/dev/null |
      head -c $((size * 1024)) >"$folder/files/text-${size}k"
  done
  head -c 307200 /dev/urandom >"$folder/files/noise-300k"
  cat >"$folder/nginx.conf" <<CONF
daemon off;
user root;
worker_processes 1;
pid $folder/nginx.pid;
error_log $work/nginx.log;
events { worker_connections 256; }
http {
  access_log off;
  default_type text/plain;
  gzip on;
  gzip_types text/plain;
  client_body_temp_path $folder/body;
  proxy_temp_path $folder/proxy;
  fastcgi_temp_path $folder/fastcgi;
  uwsgi_temp_path $folder/uwsgi;
  scgi_temp_path $folder/scgi;
  ssl_certificate $folder/certificate.pem;
  ssl_certificate_key $folder/key.pem;
  ssl_protocols TLSv1.2 TLSv1.3;
  server {
    listen 0.0.0.0:80;
    listen [::]:80 ipv6only=on;
    listen 0.0.0.0:443 ssl http2;
    listen [::]:443 ssl http2 ipv6only=on;
    root $folder/files;
    location /moved { return 302 /text-1k; }
  }
}
CONF
  start_on_server "$work/nginx.log" nginx -e "$work/nginx.log" -c "$folder/nginx.conf"
  wait_for nginx listening tcp 443
}

start_redis() {
  start_on_server "$work/redis.log" redis-server --port 6379 --bind '0.0.0.0 ::' --protected-mode no --save '' \
    --appendonly no --daemonize no --dir "$work"
  wait_for redis-server listening tcp 6379
}

start_ssh() {
  local folder=$work/ssh
  mkdir -p "$folder"
  ssh-keygen -q -t ed25519 -N '' -C laneway-host -f "$folder/host_key"
  ssh-keygen -q -t ed25519 -N '' -C laneway-user -f "$folder/user_key"
  cp "$folder/user_key.pub" "$folder/authorized_keys"
  cat >"$folder/sshd_config" <<CONF
Port 22
HostKey $folder/host_key
AuthorizedKeysFile $folder/authorized_keys
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
PrintLastLog no
PidFile none
Subsystem sftp /usr/lib/openssh/sftp-server
CONF
  # sshd wants /run/sshd; "ip netns exec" gave it mounts of its own, so this one goes with the process.
  # shellcheck disable=SC2016 # $1 is for the inner shell
  start_on_server "$work/sshd.log" sh -c \
    'mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/sshd && exec /usr/sbin/sshd -D -e -f "$1"' \
    sh "$folder/sshd_config"
  wait_for sshd listening tcp 22
}

start_quic() {
  start_on_server "$work/quic.log" "$work/venv/bin/python" "$here/record/quic-pair.py" serve :: \
    "$work/web/certificate.pem" "$work/web/key.pem"
  wait_for "the QUIC server" listening udp 443
}

start_unusual() {
  start_on_server "$work/unusual.log" python3 "$here/record/unusual-traffic.py" serve eth0
  wait_for unusual-traffic.py grep -q ready "$work/unusual.log"
}

# --- Clients ----------------------------------------------------------------------------------------------------------

drive_dns() {
  local server names=$work/names i
  for server in "$V4" "$V6" "$VLAN_V4" "$VLAN_V6" "$QINQ_V4" "$QINQ_V6"; do
    on_client dig "@$server" www.example.net A
    on_client dig "@$server" www.example.net AAAA
    on_client dig "@$server" example.net TXT +tcp
    on_client dig "@$server" long.example.net TXT
  done
  on_client dig "@$OLD_QINQ_V6" www.example.net AAAA
  on_client dig "@$V4" long.example.net TXT +noedns # too long for 512 bytes: cut short, and asked again over TCP
  on_client dig "@$V6" long.example.net TXT +noedns
  on_client dig "@$V4" alias.example.net CNAME
  on_client dig "@$V4" example.net MX
  on_client dig "@$V4" _http._tcp.example.net SRV
  on_client dig "@$V4" -x "$V4"
  on_client dig "@$V4" absent.example.net
  on_client dig "@$V4" +keepopen +tcp www.example.net A www.example.net AAAA example.net TXT
  # One socket, hence one flow, per question.
  for ((i = 0; i < 50; i++)); do
    echo "host-$i.hosts.example.net A"
    echo "host-$i.hosts.example.net AAAA"
  done >"$names"
  on_client dig "@$V4" -b "${CLIENT_V4[1]}" -f "$names"
  on_client dig "@$V6" -f "$names"
  head -n 30 "$names" >"$names.few"
  on_client dig "@$VLAN_V4" -f "$names.few"
  on_client dig "@$QINQ_V6" -f "$names.few"
}

fetch() { # server address, curl's arguments...
  local server=$1
  shift
  [[ $server != *:* ]] || server="[$server]"
  on_client curl --silent --insecure --output /dev/null --connect-to "www.example.net:80:$server:80" \
    --connect-to "www.example.net:443:$server:443" "$@"
}

drive_http() {
  local server i url=http://www.example.net
  for server in "$V4" "$V6"; do
    fetch "$server" "$url/empty"
    fetch "$server" "$url/absent"
    fetch "$server" --head "$url/text-10k"
    fetch "$server" --location "$url/moved"
    fetch "$server" --range 1000-2999 "$url/text-100k"
    fetch "$server" --data-binary "@$work/web/files/text-10k" "$url/text-1k"
    fetch "$server" --compressed "$url/text-100k"
    fetch "$server" "$url/text-1k" --output /dev/null "$url/text-10k" --output /dev/null "$url/text-100k" # kept alive
    fetch "$server" --http1.0 "$url/text-1k"
  done
  fetch "$V4" "$url/noise-300k"
  fetch "$VLAN_V4" "$url/text-100k"
  fetch "$VLAN_V6" "$url/text-10k"
  fetch "$QINQ_V4" "$url/text-10k"
  fetch "$QINQ_V6" "$url/text-100k"
  fetch "$OLD_QINQ_V6" "$url/text-10k"
  for ((i = 0; i < 60; i++)); do
    fetch "$V4" --interface "${CLIENT_V4[i % ${#CLIENT_V4[@]}]}" "$url/text-1k?number=$i"
  done
  for ((i = 0; i < 30; i++)); do
    fetch "$V6" "$url/text-1k?number=$i"
  done
}

drive_tls() {
  local server i url=https://www.example.net
  for server in "$V4" "$V6"; do
    fetch "$server" --http1.1 --tlsv1.3 "$url/text-100k"
    fetch "$server" --http1.1 --tls-max 1.2 "$url/text-10k"
    fetch "$server" --http2 "$url/text-1k" --output /dev/null "$url/text-10k" --output /dev/null "$url/absent"
  done
  fetch "$V4" --http2 "$url/noise-300k"
  fetch "$VLAN_V6" --http2 "$url/text-10k"
  fetch "$QINQ_V4" --tls-max 1.2 "$url/text-10k"
  for ((i = 0; i < 20; i++)); do
    fetch "$V4" --tlsv1.3 --interface "${CLIENT_V4[i % ${#CLIENT_V4[@]}]}" "$url/text-1k?number=$i"
    fetch "$V6" --tls-max 1.2 "$url/text-1k?number=$i"
  done
  # A session and its resumption in both versions, and an offer the server refuses with an alert.
  for version in -tls1_2 -tls1_3; do
    on_client openssl s_client "$version" -connect "$V4:443" -servername www.example.net -sess_out "$work/session" <<<Q
    on_client openssl s_client "$version" -connect "$V4:443" -servername www.example.net -sess_in "$work/session" <<<Q
  done
  in_vain openssl s_client -tls1_2 -cipher PSK-AES128-CBC-SHA256 -connect "$V4:443" </dev/null
  in_vain curl --silent --max-time 3 "http://$V4:443/" # plain HTTP where TLS is spoken
}

drive_redis() {
  local server i
  for server in "$V4" "$V6" "$VLAN_V4" "$QINQ_V6"; do
    on_client redis-cli -h "$server" PING
    on_client redis-cli -h "$server" -3 HSET user:1 name example visits 17
    on_client redis-cli -h "$server" -3 HGETALL user:1
    on_client redis-cli -h "$server" NOSUCHCOMMAND
  done
  for ((i = 0; i < 400; i++)); do
    printf 'SET key:%d value-%d\r\nINCR counter\r\nGET key:%d\r\n' "$i" "$i" "$((i / 2))"
  done >"$work/commands"
  on_client redis-cli -h "$V4" --pipe <"$work/commands"
  head -n 300 "$work/commands" >"$work/commands.few"
  on_client redis-cli -h "$V6" <"$work/commands.few"
  on_client redis-benchmark -h "$V4" -q -c 10 -n 300 -d 32 -r 1000 -t set,get,lpush
  on_client redis-benchmark -h "$V4" -q -c 10 -n 4000 -P 16 -d 64 -r 1000 -t set,get
}

drive_ssh() {
  local options=(-F /dev/null -i "$work/ssh/user_key" -o IdentitiesOnly=yes -o StrictHostKeyChecking=no
    -o "UserKnownHostsFile=$work/ssh/known" -o GlobalKnownHostsFile=/dev/null -o BatchMode=yes)
  on_client ssh "${options[@]}" "root@$V4" 'seq 1 200' </dev/null
  # shellcheck disable=SC2016 # $i is for the far shell
  on_client ssh "${options[@]}" "root@$VLAN_V6" 'for i in 1 2 3 4 5; do echo "$i"; sleep 0.1; done' </dev/null
  on_client scp "${options[@]}" "$work/web/files/noise-300k" "root@$V4:$work/ssh/up"
  on_client scp "${options[@]}" "root@[$V6]:$work/web/files/text-100k" "$work/ssh/down"
  on_client sftp "${options[@]}" -b - "root@$V4" <<<"ls $work/web/files"
}

drive_quic() {
  local address
  on_client "$work/venv/bin/python" "$here/record/quic-pair.py" get "$V4" /1000 /150000
  for address in "$V6" "$VLAN_V4" "$QINQ_V6"; do
    on_client "$work/venv/bin/python" "$here/record/quic-pair.py" get "$address" /1000 /20000
  done
}

# The programs are usrsctp's own: SCTP in user space over raw sockets, needing no kernel module. One server at a time,
# since each would abort the other's associations.
drive_sctp() {
  local server_pid
  # tsctp -n messages of -l bytes, -D: no delay.
  start_on_server "$work/sctp.log" /usr/lib/usrsctp/tsctp -L "$V4" -p 5001
  server_pid=$!
  sleep 0.5 # it listens on a raw socket, which shows no port
  on_client /usr/lib/usrsctp/tsctp -L 192.0.2.2 -p 5001 -n 60 -l 400 "$V4"
  kill "$server_pid"
  wait "$server_pid" 2>/dev/null || true
  # tsctp knows IPv4 only. The client ends when its input does.
  start_on_server "$work/sctp-v6.log" /usr/lib/usrsctp/echo_server
  server_pid=$!
  sleep 0.5
  printf '%s\n' 'a line' 'and another' | on_client /usr/lib/usrsctp/client "$V6" 7
  kill "$server_pid"
  wait "$server_pid" 2>/dev/null || true
}

drive_icmp() {
  local server
  for server in "$V4" "$V6" "$VLAN_V4" "$VLAN_V6" "$QINQ_V4" "$QINQ_V6"; do
    on_client ping -n -c 3 -i 0.1 "$server"
    on_client ping -n -c 2 -i 0.1 -s 1400 "$server"
    on_client ping -n -c 2 -i 0.1 -s 4000 "$server"
  done
  on_client ping -n -c 3 -i 0.1 "$OLD_QINQ_V6"
  on_client ping -n -c 2 -i 0.1 -s 0 "$V4"
  on_client ping -n -c 1 -s 60000 "$V4"
  on_client ping -n -c 2 -i 0.1 -R "$V4"
  on_client ping -n -c 2 -i 0.1 -T tsonly "$V4"
  on_client ping -n -c 2 -i 0.1 -T tsandaddr "$V4"
  on_client ping -n -c 3 -i 0.1 -I vxlan42 2001:db8:2a::1
  on_client ping -n -c 2 -i 0.2 -b 192.0.2.255 || true # no host answers
  on_client ping -n -c 2 -i 0.2 ff02::1%eth0
  # The server's route carries 1280 bytes: "fragmentation needed".
  in_vain ping -n -c 2 -i 0.2 -W 1 -M 'do' -s 1400 "$BEYOND_V4"
  in_vain ping -n -c 2 -i 0.2 -W 1 -t 1 "$BEYOND_V4"
  in_vain traceroute -n -m 2 -q 2 -w 0.5 "$BEYOND_V4"
  in_vain traceroute -n -m 1 -q 2 -w 0.5 "$V6"
  in_vain traceroute -n -m 2 -q 2 -w 0.5 -T -p 80 "$V4"
}

drive_unusual() {
  on_client python3 "$here/record/unusual-traffic.py" drive eth0 "$V4" "$V6"
}

# Closed ports, absent hosts and a path that loses packets for a moment.
drive_failures() {
  local absent pids=() server
  for server in "$V4" "$V6" "$VLAN_V4" "$QINQ_V6"; do
    [[ $server != *:* ]] || server="[$server]"
    in_vain curl --silent "http://$server:81/"
  done
  for absent in 192.0.2.201 '[2001:db8:1::201]'; do # no answer to ARP or neighbour discovery
    in_vain curl --silent --max-time 3 "http://$absent/" &
    pids+=("$!")
  done
  # An answer to ARP, but no host: the SYN is sent again and again.
  ip -n "$cli" neigh replace 192.0.2.200 lladdr "$NOBODY_MAC" dev eth0 nud permanent
  ip -n "$cli" neigh replace 2001:db8:1::200 lladdr "$NOBODY_MAC" dev eth0 nud permanent
  for absent in 192.0.2.200 '[2001:db8:1::200]'; do
    in_vain curl --silent --max-time 4 "http://$absent/" &
    pids+=("$!")
  done
  wait "${pids[@]}"
  # First the client's acknowledgements, then the server's segments, go to a host that is not there.
  fetch "$V4" --limit-rate 60k http://www.example.net/text-100k &
  pids=("$!")
  sleep 0.5
  ip -n "$cli" neigh replace "$V4" lladdr "$NOBODY_MAC" dev eth0 nud permanent
  sleep 0.4
  ip -n "$cli" neigh del "$V4" dev eth0
  ip -n "$srv" neigh replace 192.0.2.2 lladdr "$NOBODY_MAC" dev eth0 nud permanent
  sleep 0.4
  ip -n "$srv" neigh del 192.0.2.2 dev eth0
  wait "${pids[@]}"
}

drive_dhcp() {
  # Two rounds of discover, offer, request, acknowledge, and a release (-R); /bin/true: the address is not put to use.
  on_client udhcpc -i eth0 -f -q -n -R -s /bin/true
  on_client udhcpc -i eth0 -f -q -n -s /bin/true
}

# --- From the recording to the files ----------------------------------------------------------------------------------

stop_capture() {
  sleep 1 # the last answers
  kill "$tcpdump_pid"
  timeout "$READY_WAIT_SECONDS" tail --pid="$tcpdump_pid" -f /dev/null # it writes what it still holds
  if ! grep -q '^0 packets dropped by kernel' "$work/tcpdump.log"; then
    echo "record-mixed: tcpdump lost packets: record again on a calmer machine" >&2 && exit 1
  fi
}

# One of each kind, for examples: "how many frames: which", in tshark's filter language. The first UDP datagrams that
# were cut, and their echoes, come whole: two fragments each; the SYN to the absent host comes with its repetition.
readonly TINY=(
  "2: arp" "1: dhcp.option.dhcp == 1" "1: dhcp.option.dhcp == 2" "1: dhcp.option.dhcp == 3" "1: dhcp.option.dhcp == 5"
  "2: dns && udp && ip && frame.len < 150" "2: dns && udp && ipv6 && frame.len < 180"
  "1: dns && tcp && frame.len < 200" "1: tls.handshake.type == 1 && ip" "1: quic.long.packet_type == 0"
  "2: quic && !quic.long.packet_type && frame.len < 120" "2: ssh.protocol" "3: resp && frame.len < 120"
  "4: sctp && ip && frame.len < 300" "2: sctp && ipv6 && !vxlan && frame.len < 300"
  "2: udplite && ip" "1: udplite && ipv6" "1: igmp" "1: icmpv6.type == 143"
  "1: icmpv6.type == 133" "1: icmpv6.type == 134" "2: icmpv6.type == 135" "1: icmpv6.type == 136"
  "2: icmp && !vlan && ip.len < 100 && icmp.type in {0, 8}" "2: icmpv6.type in {128, 129} && !vlan && frame.len < 130"
  "1: icmp.type == 3 && icmp.code == 3" "1: icmp.type == 3 && icmp.code == 2" "1: icmp.type == 3 && icmp.code == 4"
  "1: icmp.type == 5" "1: icmp.type == 11" "1: icmpv6.type == 1" "1: icmpv6.type == 4"
  "2: vlan && !ieee8021ad && ip && frame.len < 120" "1: vlan && !ieee8021ad && ipv6 && frame.len < 150"
  "2: ieee8021ad && ip && frame.len < 120" "1: ieee8021ad && ipv6 && frame.len < 150" "1: ieee8021ad && arp"
  "2: eth.type == 0x9100 && udp" "1: eth.type == 0x9100 && tcp" "1: ieee8021ad && vlan.etype == 0x8100"
  "1: eth.padding && ip && !vlan" "1: ip.opt.type == 7" "1: ip.opt.type == 68" "1: ip.opt.type == 148 && udp"
  "2: ip.proto == 17 && ip.flags.mf == 1" "2: ip.proto == 17 && ip.frag_offset > 0"
  "1: ipv6.hopopts && udp && !vxlan && !ipv6.dstopts" "1: ipv6.dstopts && udp && !ipv6.hopopts"
  "2: ipv6.fraghdr.nxt == 17 && ipv6.fraghdr.offset == 0" "2: ipv6.fraghdr.nxt == 17 && ipv6.fraghdr.offset > 0"
  "1: ipv6.hopopts && ipv6.dstopts && udp" "1: ipv6.routing.type == 4"
  "1: ipv6.fraghdr.offset == 0 && ipv6.fraghdr.more == 0" "1: ah && udp && !icmpv6" "1: ipv6.nxt == 135"
  "1: hip && !icmpv6" "1: shim6 && !icmpv6"
  "1: stp" "1: eth.type == 0x88b5" "1: vlan.id == 0" "1: tcp.flags.reset == 1 && ip" "1: tcp.flags.urg == 1"
  "1: tcp.flags.ae == 1" "1: tcp.flags.syn == 1 && tcp.flags.ece == 1" "1: tcp.flags.syn == 1 && tcp.len > 0"
  "1: tcp.options.mptcp.subtype" "1: tcp.analysis.zero_window" "2: tcp && ip.dst == 192.0.2.200" "2: vxlan"
  "1: ip.dst == 192.0.2.255 && udp && frame.len < 200" "1: ip.dst == 233.252.0.1"
  "1: ipv6.dst == ff0e::db8:0:1 && frame.len < 200" "1: udp.checksum == 0 && ip" "1: udp.length == 8"
  "1: ip.proto == 253" "1: ipv6.nxt == 59"
)

numbers_of() { # filter -> frame numbers, a line each
  tshark -n -r "$work/mixed.pcap" -Y "$1" -T fields -e frame.number 2>>"$work/tshark.log"
}

choose_tiny() {
  local kind wanted filter stream found chosen=()
  stream=$(tshark -n -r "$work/mixed.pcap" -Y 'http.response.code == 404 && ip' -T fields -e tcp.stream \
    2>>"$work/tshark.log" | sed -n 1p)
  mapfile -t found < <(numbers_of "tcp.stream == ${stream:?no HTTP 404 in the recording}")
  chosen+=("${found[@]}")
  for kind in "${TINY[@]}"; do
    wanted=${kind%%: *}
    filter=${kind#*: }
    mapfile -t found < <(numbers_of "$filter")
    if ((${#found[@]} == 0)); then
      echo "record-mixed: no frame of the kind: $filter" >&2 && exit 1
    fi
    chosen+=("${found[@]:0:wanted}")
  done
  printf '%s\n' "${chosen[@]}" | sort -nu
}

# Both precisions come from one recording, so tiny.pcap and tiny-ns.pcapng hold the same frames.
cut_captures() {
  local chosen
  editcap -F pcap "$work/raw-ns.pcap" "$work/mixed.pcap"
  mapfile -t chosen < <(choose_tiny)
  ((${#chosen[@]})) || exit 1 # choose_tiny has printed why
  editcap -F pcap -r "$work/mixed.pcap" "$work/tiny.pcap" "${chosen[@]}"
  editcap -F pcapng -r "$work/raw-ns.pcap" "$work/tiny-ns.pcapng" "${chosen[@]}"
  zstd -q -19 "$work/mixed.pcap" -o "$work/mixed.pcap.zst"
}

check_captures() {
  local bytes
  python3 "$here/record/count-captures.py" check --every-row "$work/mixed.pcap.zst"
  python3 "$here/record/count-captures.py" check --every-row "$work/tiny.pcap"
  python3 "$here/record/count-captures.py" check --every-row "$work/tiny-ns.pcapng"
  bytes=$(stat -c %s "$work/mixed.pcap.zst")
  if ((bytes > COMMITTED_BYTES_MAX)); then
    echo "record-mixed: mixed.pcap.zst has $bytes bytes, at most $COMMITTED_BYTES_MAX are to be committed" >&2 && exit 1
  fi
}

list_versions() {
  local package
  # shellcheck disable=SC1091 # the machine's own
  (. /etc/os-release && echo "$PRETTY_NAME, Linux $(uname -r | cut -d. -f1,2)")
  for package in bind9-dnsutils curl dnsmasq-base iproute2 iputils-ping libusrsctp-examples nginx-light openssh-client \
    openssh-server openssl redis-server tcpdump traceroute tshark udhcpc; do
    dpkg-query -W -f '${Package} ${Version}\n' "$package"
  done
  echo "$(python3 --version) for the scripts in record/"
  echo "aioquic $AIOQUIC_VERSION (PyPI)"
}

deliver() {
  local file
  mkdir -p "$out"
  for file in mixed.pcap.zst tiny.pcap tiny-ns.pcapng; do
    install -m 644 "$work/$file" "$out/$file"
  done
  if [[ $write_readme == yes ]]; then
    list_versions >"$work/versions"
    python3 "$here/record/count-captures.py" readme "$here/README.md" "$work/versions" \
      "$out/mixed.pcap.zst" "$out/tiny.pcap" --same-frames "$out/tiny-ns.pcapng"
  fi
}

main() {
  check_machine
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  work=$(mktemp -d -t laneway-record.XXXXXX)
  chmod 755 "$work" # some servers look at their files as another user
  install_aioquic
  make_namespaces
  start_capture
  start_dns_and_dhcp
  bring_up_client
  start_web
  start_redis
  start_ssh
  start_unusual
  start_quic
  sleep 2 # duplicate address detection, router discovery

  local step
  for step in dhcp icmp dns http tls redis ssh quic sctp unusual failures; do
    echo "recording $step"
    "drive_$step"
  done
  stop_capture
  echo "cutting and checking"
  cut_captures
  check_captures
  deliver
  echo "recorded into $out"
}

main
