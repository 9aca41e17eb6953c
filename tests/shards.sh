# Sourced by tests of patterns of files, in a temporary folder.
# 6,000 rows as one file and as seven of different lengths: one packed, one without rows, one without its last newline.
awk 'BEGIN {
    srand(3)
    split("900 1500 10 0 2000 590 1000", size)
    print "label,a,b,c" >"all.csv"
    for (f = 1; f <= 7; f++) {
        csv = "part-" f ".csv"
        svm = "part-" f ".svm"
        print "label,a,b,c" >csv
        printf "" >svm
        for (i = 0; i < size[f]; i++) {
            a = rand() - 0.5; b = rand() - 0.5; c = rand() < 0.3 ? "x" : "y"
            y = a + b / 2 + (c == "x") / 4 + (rand() - 0.5) / 2 > 0
            row = y "," a "," b "," c
            print row >csv
            print row >"all.csv"
            row = (y ? "+1" : "-1") " 1:" a " 2:" b (c == "x" ? " 3:1" : "")
            printf "%s%s", row, f == 3 && i == size[f] - 1 ? "" : "\n" >svm
            print row >"all.svm"
        }
    }
}'
gzip part-2.csv part-5.svm
