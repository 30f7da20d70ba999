package PVE::BackupProvider::Plugin::Bale;

# Backups of virtual machines of Proxmox VE by bale, through its interface for backup providers.
#
# Proxmox VE holds a moment of each disk and exports it over NBD; with a bitmap it lets nobody read
# anything but what changed. What the bitmap is relative to is remembered here, for each guest, and
# the rest of each block comes from that snapshot (bale backup --changes-only).
#
# An archive is two snapshots of one host: the guest's configuration first, with the tag
# pve-config:ARCHIVE, then its disks, with the tag pve:ARCHIVE. What has the second is listed.

use strict;
use warnings;

use Fcntl qw(O_CREAT O_EXCL O_WRONLY);
use File::Path qw(make_path remove_tree);
use IO::Select;
use IPC::Open3;
use JSON::PP;
use POSIX qw(strftime);
use Symbol qw(gensym);

use base qw(PVE::BackupProvider::Plugin::Base);

# Seconds that an export may take until it can be connected to.
my $EXPORT_SECONDS_MAX = 120;

sub new {
    my ($class, $storage_plugin, $scfg, $storeid, $log) = @_;
    return bless {
        scfg => $scfg,
        storeid => $storeid,
        log => $log,
        exports => {},
    }, $class;
}

sub provider_name { return 'Bale' }

# Where sockets, configurations and what is remembered are. The latter is for all nodes of a
# cluster: a bitmap may move with its machine.
sub run_directory {
    my ($self, $vmid) = @_;
    my $base = $self->{scfg}->{'bale-run-directory'} // '/run/bale-pve';
    return join('/', $base, $self->{storeid}, $vmid);
}

sub state_file {
    my ($self, $vmid) = @_;
    my $base = $self->{scfg}->{'bale-state-directory'} // '/etc/pve/priv/bale';
    return join('/', $base, $self->{storeid}, "$vmid.json");
}

sub make_private {
    my ($directory) = @_;
    make_path($directory, { mode => 0700 });
    die "make the directory $directory: $!\n" if !-d $directory;
    return $directory;
}

sub write_file {
    my ($path, $content) = @_;
    my $new = "$path.new";
    unlink $new;
    sysopen(my $file, $new, O_WRONLY | O_CREAT | O_EXCL, 0600) or die "write $new: $!\n";
    print {$file} $content or die "write $new: $!\n";
    close($file) or die "write $new: $!\n";
    rename($new, $path) or die "name $path: $!\n";
}

sub read_file {
    my ($path) = @_;
    open(my $file, '<', $path) or return undef;
    local $/;
    return scalar <$file>;
}

# The command, with nothing of this process's environment that names another repository.
sub environment {
    my ($self) = @_;
    my $scfg = $self->{scfg};
    my %env = map { $_ => $ENV{$_} } grep { !/^BALE_/ } keys %ENV;
    $env{PATH} //= '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
    $env{BALE_REPOSITORY} = $scfg->{'bale-repository'};
    $env{BALE_PASSWORD_FILE} = $self->password_file();
    $env{BALE_CACHE_DIR} = $scfg->{'bale-cache-directory'} // '/var/cache/bale';
    return \%env;
}

sub password_file {
    my ($self) = @_;
    return $self->{scfg}->{'bale-password-file'} // "/etc/pve/priv/storage/$self->{storeid}.pw";
}

sub start {
    my ($self, @words) = @_;
    my $bale = $self->{scfg}->{'bale-command'} // 'bale';
    local %ENV = %{ $self->environment() };
    open(my $nothing, '<', '/dev/null') or die "open /dev/null: $!\n";
    my $err = gensym();
    my $pid = open3('<&' . fileno($nothing), my $out, $err, $bale, @words);
    return ($pid, $out, $err);
}

# Runs it to its end: exit code and output. What it says goes to the log of the task.
sub run {
    my ($self, @words) = @_;
    my ($pid, $out, $err) = $self->start(@words);
    my ($output, $said) = ('', '');
    my $select = IO::Select->new($out, $err);
    my $done = eval {
        while (my @ready = $select->can_read()) {
            for my $handle (@ready) {
                my $count = sysread($handle, my $part, 65536);
                if (!$count) {
                    $select->remove($handle);
                } elsif ($handle == $out) {
                    $output .= $part;
                } else {
                    $said .= $part;
                    $self->{log}->('info', "bale: $1") while $said =~ s/^([^\n]*)\n//;
                }
            }
        }
        1;
    };
    my $why = $@;
    # A task that is stopped stops it, too: what it finished is kept.
    kill('TERM', $pid) if !$done;
    waitpid($pid, 0);
    my $status = $?;
    die $why if !$done;
    $self->{log}->('info', "bale: $said") if length($said);
    die "bale $words[0] was killed by signal " . ($status & 127) . "\n" if $status & 127;
    return ($status >> 8, $output);
}

sub run_or_die {
    my ($self, @words) = @_;
    my ($code, $output) = $self->run(@words);
    die "bale $words[0] ended with $code\n" if $code != 0;
    return $output;
}

# Objects of a type, of what a command printed with --json.
sub objects {
    my ($output, $type) = @_;
    my @found;
    for my $line (split(/\n/, $output)) {
        my $object = eval { decode_json($line) };
        push @found, $object if ref($object) eq 'HASH' && ($object->{type} // '') eq $type;
    }
    return @found;
}

# Snapshots of archives: tag, kind, guest and time, oldest first.
sub snapshots {
    my ($self) = @_;
    my @found;
    for my $snapshot (objects($self->run_or_die('snapshots', '--json'), 'snapshot')) {
        next if $snapshot->{partial};
        for my $tag (@{ $snapshot->{tags} // [] }) {
            next if $tag !~ m!^(pve|pve-config):((vm|ct)/(\d+)/(\S+Z))$!;
            push @found, { kind => $1, archive => $2, vmid => $4, snapshot => $snapshot };
        }
    }
    return @found;
}

# Of an archive the snapshot of a kind; dies if there is none.
sub find {
    my ($self, $volname, $kind) = @_;
    my $archive = $volname =~ s!^backup/!!r;
    my @found = grep { $_->{kind} eq $kind && $_->{archive} eq $archive } $self->snapshots();
    die "the repository has no archive $archive\n" if !@found;
    return $found[-1]->{snapshot};
}

# Names of the images of a snapshot, with their sizes.
sub images {
    my ($self, $id) = @_;
    my %sizes;
    for my $entry (objects($self->run_or_die('ls', $id, '--json'), 'entry')) {
        $sizes{$1} = $entry->{size} if $entry->{path} =~ m!^/?([^/]+)\.raw$!;
    }
    return \%sizes;
}

sub job_init {
    my ($self, $start_time) = @_;
    # Does it open?
    $self->run_or_die('snapshots', '--latest', '1', '--json');
}

sub job_cleanup { return }

sub backup_init {
    my ($self, $vmid, $vmtype, $start_time) = @_;
    my $kind = $vmtype eq 'qemu' ? 'vm' : 'ct';
    my $time = strftime('%Y-%m-%dT%H:%M:%SZ', gmtime($start_time));
    $self->{archive} = "$kind/$vmid/$time";
    $self->{'archive-size'} = 0;
    return { 'archive-name' => $self->{archive} };
}

sub backup_cleanup {
    my ($self, $vmid, $vmtype, $success, $info) = @_;
    remove_tree($self->run_directory($vmid));
    return { stats => { 'archive-size' => $self->{'archive-size'} // 0 } };
}

# Containers are for others: undef says so.
sub backup_get_mechanism {
    my ($self, $vmid, $vmtype) = @_;
    return $vmtype eq 'qemu' ? 'nbd' : undef;
}

sub backup_handle_log_file { return }

# A bitmap is used if the snapshot that was made when it began is there, whole, and of this size.
# Any other snapshot may be older than the bitmap, and what was written in between would be missed.
sub backup_vm_query_incremental {
    my ($self, $vmid, $volumes) = @_;
    my %modes = map { $_ => 'new' } keys %$volumes;
    my $state = read_file($self->state_file($vmid));
    $state = eval { decode_json($state) } if defined($state);
    return \%modes if ref($state) ne 'HASH' || !defined($state->{snapshot});
    my @there = grep { $_->{snapshot}->{id} eq $state->{snapshot} } $self->snapshots();
    return \%modes if !@there || $there[0]->{snapshot}->{problems};
    my $sizes = $self->images($state->{snapshot});
    for my $device (keys %$volumes) {
        my $size = $sizes->{$device};
        $modes{$device} = 'use' if defined($size) && $size == $volumes->{$device}->{size};
    }
    $self->{since} = $state->{snapshot};
    return \%modes;
}

sub backup_vm {
    my ($self, $vmid, $guest_config, $volumes, $info) = @_;
    my $directory = make_private($self->run_directory($vmid));
    my @common = ('--json', '--host', "pve-$vmid");
    push @common, '--limit-upload', int($info->{'bandwidth-limit'}) if $info->{'bandwidth-limit'};

    my $config = make_private("$directory/config");
    write_file("$config/qemu-server.conf", $guest_config);
    write_file("$config/firewall.conf", $info->{'firewall-config'})
        if defined($info->{'firewall-config'});
    my $tag = "pve-config:$self->{archive}";
    $self->run_or_die('backup', $config, @common, '--tag', $tag);

    # The sockets are elsewhere each time, and a source is what its socket is called.
    my (@words, $has_bitmap);
    for my $device (sort keys %$volumes) {
        my $volume = $volumes->{$device};
        die "the device name $device is not one that can be stored\n"
            if $device !~ m/^[A-Za-z0-9_.-]+$/;
        my $link = "$directory/$device.nbd";
        unlink $link;
        symlink($volume->{'nbd-path'}, $link) or die "make the link $link: $!\n";
        my $uri = "nbd+unix:///$device?socket=$link";
        if ($volume->{'bitmap-mode'} eq 'reuse') {
            die "Proxmox VE uses a bitmap of $device that is relative to nothing known\n"
                if !defined($self->{since});
            my $name = $volume->{'bitmap-name'} =~ s/([^A-Za-z0-9_.-])/sprintf('%%%02X', ord($1))/ger;
            $uri .= "&bitmap=$name";
            $has_bitmap = 1;
        }
        $self->{log}->('info', "$device: bitmap: $volume->{'bitmap-mode'}");
        push @words, '--image', $uri;
    }
    # What was left out as free could not be read later, when only what changed can.
    push @words, '--changes-only', '--changes-since', $self->{since} if $has_bitmap;
    $tag = "pve:$self->{archive}";
    my ($code, $output) =
        $self->run('backup', '--point-in-time', '--read-free', @words, @common, '--tag', $tag);
    $self->{log}->('err', "bale: $_->{path}: $_->{action}: $_->{message}")
        for objects($output, 'problem');
    $self->{log}->('err', "bale: $_->{message}") for objects($output, 'error');
    die "the archive is incomplete: the log says what of it is missing\n" if $code == 3;
    die "bale backup ended with $code\n" if $code != 0;
    my ($summary) = objects($output, 'summary');
    die "bale backup made no snapshot\n" if !defined($summary->{snapshot});
    $self->{'archive-size'} = $summary->{bytes_stored};

    # Last: the bitmap is advanced when this returns, and never before it is known to what.
    my $file = $self->state_file($vmid);
    make_private($file =~ s![^/]+$!!r);
    write_file($file, encode_json({ snapshot => $summary->{snapshot} }));
}

sub backup_container_prepare { die "bale backs up no containers of Proxmox VE\n" }

sub backup_container { die "bale backs up no containers of Proxmox VE\n" }

sub restore_get_mechanism { return ('qemu-img', 'qemu') }

sub config_file {
    my ($self, $volname, $name) = @_;
    my $id = $self->find($volname, 'pve-config')->{id};
    my @there = objects($self->run_or_die('ls', $id, '--json', '--recursive'), 'entry');
    my ($found) = grep { $_->{path} =~ m!/\Q$name\E$! } @there;
    return undef if !defined($found);
    return $self->run_or_die('dump', "$id:$found->{path}");
}

sub archive_get_guest_config {
    my ($self, $volname) = @_;
    my $config = $self->config_file($volname, 'qemu-server.conf');
    return $config // die "the archive has no configuration\n";
}

sub archive_get_firewall_config {
    my ($self, $volname) = @_;
    return $self->config_file($volname, 'firewall.conf');
}

sub restore_vm_init {
    my ($self, $volname) = @_;
    my $id = $self->find($volname, 'pve')->{id};
    $self->{restores} = $id;
    my $sizes = $self->images($id);
    return { map { $_ => { size => $sizes->{$_} } } keys %$sizes };
}

sub restore_vm_cleanup {
    my ($self, $volname) = @_;
    $self->end_export($_, 0) for keys %{ $self->{exports} };
    return;
}

# An export of the image, which qemu-img copies; nothing is written anywhere else.
sub restore_vm_volume_init {
    my ($self, $volname, $device, $info) = @_;
    my $id = $self->{restores} // $self->find($volname, 'pve')->{id};
    my $directory = make_private($self->run_directory("restore-$$"));
    my $socket = "$directory/$device";
    unlink $socket;
    my ($pid, $out, $err) =
        $self->start('export', "$id:/$device.raw", '--nbd', "unix:$socket", '--json');
    $self->{exports}->{$device} =
        { pid => $pid, out => $out, err => $err, directory => $directory };
    my $output = '';
    local $SIG{ALRM} = sub { die "the export of $device does not begin\n" };
    alarm($EXPORT_SECONDS_MAX);
    my $uri = eval {
        while (defined(my $line = <$out>)) {
            my ($export) = objects($line, 'export');
            return $export->{uri} if defined($export);
            $output .= $line;
        }
        return undef;
    };
    my $why = $@;
    alarm(0);
    if (!defined($uri)) {
        my ($error) = objects($output, 'error');
        $why ||= defined($error) ? "$error->{message}\n" : "the export of $device ended\n";
        eval { $self->end_export($device, 0) };
        die $why;
    }
    return { 'qemu-img-path' => $uri };
}

# What the export could not read was an error for qemu-img, and is named here.
sub restore_vm_volume_cleanup {
    my ($self, $volname, $device, $info) = @_;
    $self->end_export($device, 1);
    return;
}

sub end_export {
    my ($self, $device, $says) = @_;
    my $export = delete $self->{exports}->{$device} // return;
    kill('TERM', $export->{pid});
    my ($out, $err) = ($export->{out}, $export->{err});
    local $/;
    my ($output, $said) = (<$out> // '', <$err> // '');
    waitpid($export->{pid}, 0);
    rmdir $export->{directory};
    return if !$says;
    $self->{log}->('err', "bale: $_->{path}: $_->{message}") for objects($output, 'problem');
    $self->{log}->('info', "bale: $said") if length($said);
}

sub restore_container_init { die "bale restores no containers of Proxmox VE\n" }

sub restore_container_cleanup { return }

1;
