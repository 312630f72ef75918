# SPDX-License-Identifier: BSD-2-Clause
# fish: completes `tarn`, with what `tarn __complete` says.
function __tarn_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] __complete $words[2..-1] 2>/dev/null)
        if test "$line" = :file
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c tarn -f -a '(__tarn_complete)'
