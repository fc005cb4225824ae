-- The table of certificates of NSS, as Firefox creates it: a column for each attribute of PKCS #11 that NSS knows.
CREATE TABLE nssPublic (
    id PRIMARY KEY UNIQUE ON CONFLICT ABORT,
    a0, a1, a2, a3, a4, a10, a11, a12, a80, a81, a82, a83, a84, a85, a86, a87, a88, a89, a8a, a8b, a8c, a90, a100,
    a101, a102, a103, a104, a105, a106, a107, a108, a109, a10a, a10b, a10c, a110, a111, a120, a121, a122, a123, a124,
    a125, a126, a127, a128, a129, a130, a131, a132, a133, a134, a160, a161, a162, a163, a164, a165, a166, a170, a171,
    a172, a180, a181, a200, a201, a202, a210, a220, a221, a222, a223, a224, a225, a226, a227, a22a, a22b, a22c, a22d,
    a22e, a22f, a250, a251, a252, a300, a301, a302, a400, a401, a402, a403, a404, a405, a406, a480, a481, a482, a500,
    a501, a502, a503, a601, a602, a603, a604, a605, a606, a607, a608, a609, a60a, a60b, a60c, a60d, a60e, a60f, a610,
    a611, a612, a617, a618, a619, a61a, a61b, a61c, a61d, a61e, a61f, a620, a621, a622, a623, a624, a625, a626, a627,
    a628, a629, a62a, a62b, a62c, a62d, a62e, a62f, a630, a631, a632, a633, a634, a635, a636, a637, a40000211,
    a40000212, a40000213, a80000001, ace534351, ace534352, ace534353, ace534354, ace534355, ace534356, ace534357,
    ace534358, ace534364, ace534365, ace534366, ace534367, ace534368, ace534369, ace534373, ace534374, ace536351,
    ace536352, ace536353, ace536354, ace536355, ace536356, ace536357, ace536358, ace536359, ace53635a, ace53635b,
    ace53635c, ace53635d, ace53635e, ace53635f, ace536360, ace5363b4, ace5363b5, ad5a0db00
);
CREATE INDEX issuer ON nssPublic (a81);
CREATE INDEX subject ON nssPublic (a101);
CREATE INDEX label ON nssPublic (a3);
CREATE INDEX ckaid ON nssPublic (a102);
