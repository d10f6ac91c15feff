-- Status: the counts of visitors. It changes nothing.
return counts({OK, now})
